"""The published tables as data: whole and consistent in themselves."""

import csv
import re
from pathlib import Path

import paper_tex
import published_numbers as numbers
import pytest
from published_numbers import published, table_infos

import trajpilot_core.paper as paper
from trajpilot_core.errors import InputError
from trajpilot_core.paper.published import ATOMIC

FOLDER = Path(paper.__file__).parent / "tables"
PAPER = published()
TABLES = [info.file for info in table_infos() if info.file != "text"]


def test_the_index_names_every_file_once() -> None:
    files = [info.file for info in table_infos()]
    assert sorted(files) == sorted(p.stem for p in FOLDER.glob("*.csv") if p.stem != "index")


def test_the_tables_have_the_numbers_of_the_paper() -> None:
    sizes = {file: len(PAPER.of_file(file)) for file in TABLES}
    assert sizes[ATOMIC] == sizes["atomic_anticipation_full"] == 6 * 5 * 6
    assert sizes["coarse_planning_full"] == 6 * 6 * 3 * 4
    assert sizes["goal_dropout_fullgoal"] == sizes["goal_dropout_anticipation_full"] == 7 * 4 * 3


def test_all_files_have_the_same_columns_and_hold_numbers_only() -> None:
    for path in FOLDER.glob("*.csv"):
        if path.stem == "index":
            continue
        with path.open() as file:
            rows = list(csv.DictReader(file))
        assert tuple(rows[0]) == paper_tex.COLUMNS
        assert all(re.fullmatch(r"[+-]?\d+(\.\d+)?", row["value"]) for row in rows)
        assert all(" " not in row["row"] for row in rows)


def test_a_number_that_stands_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = numbers.table_rows

    def doubled(file: str) -> list[dict[str, str]]:
        return rows(file) * (2 if file == ATOMIC else 1)

    monkeypatch.setattr(numbers, "table_rows", doubled)
    with pytest.raises(InputError, match="twice"):
        published()


def test_an_unknown_number_is_an_error() -> None:
    with pytest.raises(InputError, match="no published number"):
        PAPER.value(ATOMIC, "no_traj", "M@1", 9)
