"""The published tables as data: whole and consistent in themselves."""

import csv
import re
from pathlib import Path

import paper_tex
import pytest
from paper_audit import numbers
from paper_audit.checks import checks
from paper_audit.numbers import NumberKey, half_digit, published, table_infos

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


def test_printed_digits_say_how_far_a_number_was_rounded() -> None:
    assert half_digit(PAPER.printed(ATOMIC, "no_traj", "FSeq", 3)) == pytest.approx(0.005)
    assert half_digit(PAPER.printed("monotonicity", "ground_truth", "monotonic_fraction", 8)) == pytest.approx(0.05)


def test_every_check_of_the_text_against_its_tables_holds() -> None:
    assert [check for check in checks(PAPER) if not check.holds] == []


FAULTS = [
    (NumberKey("coarse_planning_full", "pdpp", "SR", 5, "goalstep"), "0.91", "averages over horizons"),
    (NumberKey("coarse_planning_overall", "pdpp", "SR", None, "egoper"), "71.40", "cells of them"),
    (NumberKey(ATOMIC, "no_traj", "MSeq", 3), "29.39", "keep the identities"),
    (NumberKey("text", "train", "takes", None, "egoexo4d_atomic"), "2238", "takes of Ego-Exo4D"),
    (NumberKey("text", "validation", "segments", None, "keystep"), "4273", "clips of Keystep"),
    (NumberKey("qwen3vl_endpoint_cache", "R@1", "count"), "4738", "endpoint cache, R@1"),
    (NumberKey("text", "scorer", "minutes"), "30", "GPU hours of all stages"),
    (NumberKey("text", "project", "factor"), "50", "GPU hours of the project"),
    (NumberKey("text", "l1_to_goal", "pearson"), "-0.156", "square of the correlation"),
    (NumberKey("motivation", "shuffled_text", "val_l1", 1), "0.4585", "shuffled text"),
    (NumberKey("basketball_shot_outcome", "scorer", "miss_recall"), "90.89", "basketball rows"),
    (NumberKey("basketball_shot_outcome", "no_traj", "miss_recall"), "16.22", "calls made"),
    (NumberKey("text", "train", "shots", None, "egoexo4d_basketball"), "296", "balanced shots"),
    (NumberKey("basketball_shot_outcome", "oracle", "balanced_accuracy"), "95.00", "oracle over scorer"),
    (NumberKey("ek100", "no_traj", "action_R@5"), "38.37", "No-Traj over the visual probe"),
    (NumberKey("pi3_robustness", "aria_to_pi3", "Mid mAcc", None, "keystep"), "12.95", "Aria model on Pi3"),
    (NumberKey("goal_dropout_anticipation_full", "goal_dropout_traj", "Future R@1"), "34.2", "with trajectory"),
    (NumberKey(ATOMIC, "oracle", "M@1", 8), "34.69", "Oracle, M@1 at H = 8"),
]


@pytest.mark.parametrize(("key", "value", "statement"), FAULTS, ids=[fault[2] for fault in FAULTS])
def test_a_wrong_number_turns_its_check_red(key: NumberKey, value: str, statement: str) -> None:
    red = [check.statement for check in checks(PAPER.with_value(key, value)) if not check.holds]
    assert any(statement in name for name in red)
