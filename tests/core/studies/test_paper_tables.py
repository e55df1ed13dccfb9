"""The published tables as data: whole, consistent, and those that were compared with the paper's LaTeX source.

Values are kept as printed, so that the last digit shows how far each was rounded. `table` and `section` are the labels
of the paper's own source, which is not distributed; numbers of the running text have no table.
"""

import hashlib
import re
from pathlib import Path

import trajpilot_core.paper as paper
from trajpilot_core.paper.published import ATOMIC, table_rows

FOLDER = Path(paper.__file__).parent / "tables"
PAPER = {row["file"]: table_rows(row["file"]) for row in table_rows("index")}
KEY = ("row", "dataset", "horizon", "metric")
COLUMNS = ("table", "section", *KEY, "value", "bold")
COMPARED = "5c141083842a9241ea3baa5524ad25beb0217514a13265901e64eb274cdc9d04"
"""SHA-256 over the files, in which every number was found in the source; a changed one is to be compared again."""


def test_the_index_names_every_file_once_and_all_are_as_they_were_compared_with_the_source() -> None:
    files = sorted(FOLDER.glob("*.csv"))
    assert sorted(PAPER) == sorted(path.stem for path in files if path.stem != "index")
    assert hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest() == COMPARED


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
