"""The published tables as data: whole, consistent, and those that were compared with the paper's LaTeX source.

Values are kept as printed, so that the last digit shows how far each was rounded. `table` and `section` are the labels
of the paper's own source; numbers of the running text have no table. On 2026-11-29 every number of every file was read
from that source, which is not distributed, and found equal; COMPARED is the digest of what was compared.
"""

import hashlib
import json
import re
from pathlib import Path

import trajpilot_core.paper as paper
from trajpilot_core.paper.published import ATOMIC, table_rows

FILES = [row["file"] for row in table_rows("index")]
PAPER = {file: table_rows(file) for file in FILES}
KEY = ("row", "dataset", "horizon", "metric")
COLUMNS = ("table", "section", *KEY, "value", "bold")
COMPARED = "d9e5d2510a8e9e8d80fda89824bf46e448856baf5d2ffec56c13605f1cece4f8"


def digest(tables: dict[str, list[dict[str, str]]]) -> str:
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def test_the_tables_are_those_that_were_compared_with_the_paper() -> None:
    """Who changes a number compares it with the paper and renews the digest."""
    assert digest(PAPER) == COMPARED
    first = PAPER[ATOMIC][0]
    wrong = first | {"value": str(float(first["value"]) + 0.01)}
    assert digest({**PAPER, ATOMIC: [wrong, *PAPER[ATOMIC][1:]]}) != COMPARED


def test_the_index_names_every_file_once() -> None:
    folder = Path(paper.__file__).parent / "tables"
    assert sorted(FILES) == sorted(path.stem for path in folder.glob("*.csv") if path.stem != "index")


def test_the_tables_have_the_numbers_of_the_paper() -> None:
    sizes = {file: len(rows) for file, rows in PAPER.items()}
    assert sizes[ATOMIC] == sizes["atomic_anticipation_full"] == 6 * 5 * 6
    assert sizes["coarse_planning_full"] == 6 * 6 * 3 * 4
    assert sizes["goal_dropout_fullgoal"] == sizes["goal_dropout_anticipation_full"] == 7 * 4 * 3


def test_all_files_have_the_same_columns_and_hold_each_number_once() -> None:
    for file, rows in PAPER.items():
        assert tuple(rows[0]) == COLUMNS
        assert all(re.fullmatch(r"[+-]?\d+(\.\d+)?", row["value"]) for row in rows)
        assert all(" " not in row["row"] for row in rows)
        assert len({tuple(row[name] for name in KEY) for row in rows}) == len(rows), file
