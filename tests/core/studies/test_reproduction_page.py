"""docs/reproduction.md agrees with the code: its decisions name settings and places, its labels the runs."""

import re

import pytest
from checkout import CHECKOUT
from decision_cells import location, printed, setting
from label_commands import commands_table

from schemas.config import PipelineConfig

CONFIG = PipelineConfig()
PAGE = (CHECKOUT / "docs" / "reproduction.md").read_text()
REASONS = (CHECKOUT / "docs" / "decisions" / "paper-gaps.md").read_text()


def block(name: str) -> str:
    return PAGE.split(f"<!-- checked: {name} -->")[1].split("<!-- end -->")[0].strip()


ROWS = {int(cells[1]): cells[4].strip() for line in block("decisions").splitlines()[2:] if (cells := line.split("|"))}


def test_every_decision_has_its_reasons() -> None:
    assert list(ROWS) == list(range(1, 53))
    assert set(ROWS) == {int(n) for n in re.findall(r"^\| (\d+) \|", REASONS, re.M)}


def test_every_setting_and_place_exists_with_its_value() -> None:
    assert {number: printed(cell, CONFIG) for number, cell in ROWS.items()} == ROWS


def test_a_stale_value_and_a_removed_name_are_seen() -> None:
    assert printed("`scorer.margin` 0.5", CONFIG) == "`scorer.margin` 0.05"
    assert setting(CONFIG, "scorer.key") == "`scorer.key` action (or visual)"
    assert location("schemas/annotation", "MOTIONS") == "`MOTIONS` in `schemas/annotation.py`: 16"
    for removed in ("`scorer.marginal` 0.05", "`cosine_lost` in `training/losses.py`", "as the paper says"):
        with pytest.raises(AssertionError, match=r"has no|is no setting"):
            printed(removed, CONFIG)


def test_the_labels_are_those_of_the_code_with_the_runs_that_fill_them() -> None:
    assert commands_table().markdown().strip() == block("labels")
