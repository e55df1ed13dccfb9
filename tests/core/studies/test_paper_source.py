"""The published tables as data against the paper's LaTeX source, which the project does not distribute."""

import re

import paper_tex
import pytest
from checkout import OUTSIDE
from published_numbers import Paper, PublishedNumber, published, table_infos

SOURCE = OUTSIDE / "paper" / "trajpilot.tex"
if not SOURCE.is_file():
    pytest.skip(f"the paper's LaTeX source is not at {SOURCE}", allow_module_level=True)
PAPER = published()
TABLES = [info.file for info in table_infos() if info.file != "text"]
WORDS = {("trajectory_over_text", "gain_ratio"): "twenty times", ("ground_truth", "monotonic_count"): "only three of"}
"""Numbers that the text spells out."""


@pytest.fixture(scope="module")
def tex() -> str:
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


def test_the_section_on_the_predictor_never_mentions_goal_dropout(tex: str) -> None:
    assert "dropout" in paper_tex.section_text(tex, "sec:method:stage2")
    assert "goal dropout" not in paper_tex.section_text(tex, "sec:method:stage2").lower()
