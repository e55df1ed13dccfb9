"""The published tables as data: whole, consistent, and as the paper's LaTeX source (not distributed) has them.

Values are kept as printed, so that the last digit shows how far each was rounded. `table` and `section` are the labels
of the paper's own source; numbers of the running text have no table.
"""

import re
from decimal import Decimal
from pathlib import Path

import paper_tex
import pytest
from checkout import OUTSIDE

import trajpilot_core.paper as paper
from trajpilot_core.paper.published import ATOMIC, table_rows

FILES = [row["file"] for row in table_rows("index")]
PAPER = {file: table_rows(file) for file in FILES}
TABLES = [file for file in FILES if file != "text"]
SOURCE = OUTSIDE / "paper" / "trajpilot.tex"
WORDS = {("trajectory_over_text", "gain_ratio"): "twenty times", ("ground_truth", "monotonic_count"): "only three of"}
"""Numbers that the text spells out."""
Rows = list[dict[str, str]]


def by_key(rows: Rows) -> dict[tuple[str, ...], tuple[str, bool]]:
    return {
        tuple(row[name] for name in paper_tex.KEY): (row["value"].lstrip("+"), row["bold"] == "bold") for row in rows
    }


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
        assert tuple(rows[0]) == paper_tex.COLUMNS
        assert all(re.fullmatch(r"[+-]?\d+(\.\d+)?", row["value"]) for row in rows)
        assert all(" " not in row["row"] for row in rows)
        assert len(by_key(rows)) == len(rows), file


@pytest.fixture(scope="module")
def tex() -> str:
    if not SOURCE.is_file():
        pytest.skip(f"the paper's LaTeX source is not at {SOURCE}")
    return SOURCE.read_text()


def differing(rows: Rows, tex: str) -> list[str]:
    """Numbers of one file that the source prints otherwise, or not at all, or that the file lacks."""
    ours, theirs = by_key(rows), paper_tex.read_table(tex, rows[0]["table"])
    return [
        f"{key}: {ours.get(key)}, printed {theirs.get(key)}"
        for key in ours | theirs
        if ours.get(key) != theirs.get(key)
    ]


def test_every_table_is_as_the_source_prints_it_and_one_wrong_digit_is_seen(tex: str) -> None:
    for file in TABLES:
        *rows, last = PAPER[file]
        assert differing([*rows, last], tex) == [], file
        assert len(differing([*rows, last | {"value": str(Decimal(last["value"]) + 1)}], tex)) == 1, file
        text = paper_tex.section_text(tex, last["section"])
        assert rf"\label{{{last['table']}}}" in text or rf"\ref{{{last['table']}}}" in text, file


def test_every_number_of_the_text_stands_in_its_section(tex: str) -> None:
    for row in PAPER["text"]:
        value, words = row["value"].lstrip("+"), WORDS.get((row["row"], row["metric"]))
        text = paper_tex.section_text(tex, row["section"])
        if row["row"] == "hyperparameter_table":
            (columns,) = re.findall(r"\\begin\{tabular\}\{([lcr]+)\}", text)
            header = paper_tex.grid(tex, "tab:closed_vocab_hparams")[0]
            counts = {"columns_declared": len(columns), "columns_headed": len(header)}
            assert counts[row["metric"]] == int(value)
        elif words is not None:
            assert words in " ".join(text.split()), row
        else:
            running = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", text, flags=re.S)
            found = paper_tex.NUMBER.findall(paper_tex.plain(running).replace("--", " "))
            assert f"+{value}" in found or value in found, row
