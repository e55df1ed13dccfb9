"""The published tables as data: whole, consistent, and as the paper's LaTeX source (not distributed) has them."""

import csv
import re
from pathlib import Path

import paper_tex
import published_numbers as numbers
import pytest
from checkout import OUTSIDE
from published_numbers import Paper, PublishedNumber, published, table_infos

import trajpilot_core.paper as paper
from trajpilot_core.errors import InputError
from trajpilot_core.paper.published import ATOMIC

FOLDER = Path(paper.__file__).parent / "tables"
PAPER = published()
TABLES = [info.file for info in table_infos() if info.file != "text"]
SOURCE = OUTSIDE / "paper" / "trajpilot.tex"
WORDS = {("trajectory_over_text", "gain_ratio"): "twenty times", ("ground_truth", "monotonic_count"): "only three of"}
"""Numbers that the text spells out."""


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


@pytest.fixture(scope="module")
def tex() -> str:
    if not SOURCE.is_file():
        pytest.skip(f"the paper's LaTeX source is not at {SOURCE}")
    return SOURCE.read_text()


def as_read(cell: PublishedNumber) -> paper_tex.Read:
    key = cell.key
    horizon = "" if key.horizon is None else str(key.horizon)
    return paper_tex.Read(key.row, key.dataset, horizon, key.metric, "", cell.is_bold)


def differing(paper: Paper, file: str, tex: str) -> list[str]:
    """Numbers of one file that the source prints otherwise, or not at all, or that the file lacks."""
    cells = paper.of_file(file)
    ours = {as_read(c).key: (str(c.value).lstrip("+"), c.is_bold) for c in cells}
    theirs = {r.key: (r.value.lstrip("+"), r.bold) for r in paper_tex.read_table(tex, cells[0].table)}
    return [
        f"{key}: {ours.get(key)}, printed {theirs.get(key)}"
        for key in ours | theirs
        if ours.get(key) != theirs.get(key)
    ]


def test_every_table_is_as_the_source_prints_it_and_one_wrong_digit_is_seen(tex: str) -> None:
    for file in TABLES:
        cells = PAPER.of_file(file)
        assert differing(PAPER, file, tex) == [], file
        wrong = PAPER.with_value(cells[-1].key, str(cells[-1].value + 1))
        assert len(differing(wrong, file, tex)) == 1, file
        text = paper_tex.section_text(tex, cells[0].section)
        assert rf"\label{{{cells[0].table}}}" in text or rf"\ref{{{cells[0].table}}}" in text, file


def test_every_number_of_the_text_stands_in_its_section(tex: str) -> None:
    for cell in PAPER.of_file("text"):
        words = WORDS.get((cell.key.row, cell.key.metric))
        text = paper_tex.section_text(tex, cell.section)
        if cell.key.row == "hyperparameter_table":
            (columns,) = re.findall(r"\\begin\{tabular\}\{([lcr]+)\}", text)
            header = paper_tex.grid(tex, "tab:closed_vocab_hparams")[0]
            counts = {"columns_declared": len(columns), "columns_headed": len(header)}
            assert counts[cell.key.metric] == cell.value
        elif words is not None:
            assert words in " ".join(text.split()), cell
        else:
            running = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", text, flags=re.S)
            found = paper_tex.NUMBER.findall(paper_tex.plain(running).replace("--", " "))
            assert f"{cell.value:+}" in found or str(cell.value) in found, cell
