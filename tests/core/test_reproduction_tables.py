"""The published tables as data: whole, as printed in the source where it is at hand, and consistent in themselves."""

import csv
import re
from pathlib import Path

import paper_tex
import pytest

import trajpilot_core.reproduction as reproduction
from trajpilot_core.errors import InputError
from trajpilot_core.reproduction import published as published_module
from trajpilot_core.reproduction.consistent import checks
from trajpilot_core.reproduction.published import ATOMIC, Cell, Key, Paper, half_digit, published, table_infos

SOURCE = Path(__file__).parents[3] / "shared" / "paper" / "trajpilot.tex"
FOLDER = Path(reproduction.__file__).parent / "tables"
PAPER = published()
TABLES = [info.file for info in table_infos() if info.file != "text"]
WORDS = {("trajectory_over_text", "gain_ratio"): "twenty times", ("ground_truth", "monotonic_count"): "only three of"}
"""Numbers that the text spells out."""


@pytest.fixture(scope="module")
def tex() -> str:
    if not SOURCE.exists():
        pytest.skip("the paper's LaTeX source does not lie beside this checkout")
    return SOURCE.read_text()


def as_read(cell: Cell) -> paper_tex.Read:
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


@pytest.mark.parametrize("file", TABLES)
def test_every_number_of_a_table_is_as_the_source_prints_it(file: str, tex: str) -> None:
    assert differing(PAPER, file, tex) == []


@pytest.mark.parametrize("file", TABLES)
def test_one_wrong_digit_is_seen_by_the_comparison(file: str, tex: str) -> None:
    cell = PAPER.of_file(file)[-1]
    wrong = PAPER.with_value(cell.key, str(cell.value + 1))
    assert len(differing(wrong, file, tex)) == 1


@pytest.mark.parametrize("file", TABLES)
def test_a_table_stands_in_the_section_that_the_file_names(file: str, tex: str) -> None:
    cell = PAPER.of_file(file)[0]
    text = paper_tex.section_text(tex, cell.section)
    assert rf"\label{{{cell.table}}}" in text or rf"\ref{{{cell.table}}}" in text


@pytest.mark.parametrize("cell", PAPER.of_file("text"), ids=lambda c: f"{c.key.row}-{c.key.metric}-{c.key.horizon}")
def test_every_number_of_the_text_stands_in_its_section(cell: Cell, tex: str) -> None:
    words = WORDS.get((cell.key.row, cell.key.metric))
    text = paper_tex.section_text(tex, cell.section)
    if cell.key.row == "hyperparameter_table":
        (columns,) = re.findall(r"\\begin\{tabular\}\{([lcr]+)\}", text)
        header = paper_tex.grid(tex, "tab:closed_vocab_hparams")[0]
        counts = {"columns_declared": len(columns), "columns_headed": len(header)}
        assert counts[cell.key.metric] == cell.value
    elif words is not None:
        assert words in " ".join(text.split())
    else:
        running = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", text, flags=re.S)
        found = paper_tex.NUMBER.findall(paper_tex.plain(running).replace("--", " "))
        assert f"{cell.value:+}" in found or str(cell.value) in found


def test_the_section_on_the_predictor_never_mentions_goal_dropout(tex: str) -> None:
    assert "dropout" in paper_tex.section_text(tex, "sec:method:stage2")
    assert "goal dropout" not in paper_tex.section_text(tex, "sec:method:stage2").lower()


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
    rows = published_module._rows

    def doubled(file: str) -> list[dict[str, str]]:
        return rows(file) * (2 if file == ATOMIC else 1)

    monkeypatch.setattr(published_module, "_rows", doubled)
    with pytest.raises(InputError, match="twice"):
        published()


def test_an_unknown_number_is_an_error() -> None:
    with pytest.raises(InputError, match="no published number"):
        PAPER.value(ATOMIC, "no_traj", "M@1", 9)


def test_printed_digits_say_how_far_a_number_was_rounded() -> None:
    assert half_digit(PAPER.printed(ATOMIC, "no_traj", "FSeq", 3)) == pytest.approx(0.005)
    assert half_digit(PAPER.printed("monotonicity", "ground_truth", "monotonic_fraction", 8)) == pytest.approx(0.05)


def test_every_check_of_the_text_against_its_tables_holds() -> None:
    assert [check for check in checks(PAPER) if not check.holds] == []


FAULTS = [
    (Key("coarse_planning_full", "pdpp", "SR", 5, "goalstep"), "0.91", "averages over horizons"),
    (Key("coarse_planning_overall", "pdpp", "SR", None, "egoper"), "71.40", "cells of them"),
    (Key(ATOMIC, "no_traj", "MSeq", 3), "29.39", "keep the identities"),
    (Key("text", "train", "takes", None, "egoexo4d_atomic"), "2238", "takes of Ego-Exo4D"),
    (Key("text", "validation", "segments", None, "keystep"), "4273", "clips of Keystep"),
    (Key("qwen3vl_endpoint_cache", "R@1", "count"), "4738", "endpoint cache, R@1"),
    (Key("text", "scorer", "minutes"), "30", "GPU hours of all stages"),
    (Key("text", "project", "factor"), "50", "GPU hours of the project"),
    (Key("text", "l1_to_goal", "pearson"), "-0.156", "square of the correlation"),
    (Key("motivation", "shuffled_text", "val_l1", 1), "0.4585", "shuffled text"),
    (Key("basketball_shot_outcome", "scorer", "miss_recall"), "90.89", "basketball rows"),
    (Key("basketball_shot_outcome", "no_traj", "miss_recall"), "16.22", "calls made"),
    (Key("text", "train", "shots", None, "egoexo4d_basketball"), "296", "balanced shots"),
    (Key("basketball_shot_outcome", "oracle", "balanced_accuracy"), "95.00", "oracle over scorer"),
    (Key("ek100", "no_traj", "action_R@5"), "38.37", "No-Traj over the visual probe"),
    (Key("pi3_robustness", "aria_to_pi3", "Mid mAcc", None, "keystep"), "12.95", "Aria model on Pi3"),
    (Key("goal_dropout_anticipation_full", "goal_dropout_traj", "Future R@1"), "34.2", "with trajectory"),
    (Key(ATOMIC, "oracle", "M@1", 8), "34.69", "Oracle, M@1 at H = 8"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "statement"), FAULTS, ids=[fault[2] for fault in FAULTS])
def test_a_wrong_number_turns_its_check_red(key: Key, value: str, statement: str) -> None:
    red = [check.statement for check in checks(PAPER.with_value(key, value)) if not check.holds]
    assert any(statement in name for name in red)
