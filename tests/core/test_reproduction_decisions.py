"""The table of decisions reads its values from the code, so it cannot say what the code does not do."""

import re
from pathlib import Path

import pytest

from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.reproduction.decision_list import DECISIONS, PARTS, Decision
from trajpilot_core.reproduction.decisions import answer, in_words, is_built, module_words, place, setting

CONFIG = PipelineConfig()
PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "paper-gaps.md"


def test_the_decisions_are_numbered_without_a_gap() -> None:
    assert [decision.number for decision in DECISIONS] == list(range(1, 53))


def test_every_decision_of_the_page_of_reasons_is_in_the_table() -> None:
    reasoned = {int(n) for n in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.M)}
    assert reasoned <= {decision.number for decision in DECISIONS}
    assert {d.number for d in DECISIONS if not d.settings and not d.code and not d.needs} == set()


def test_a_decision_that_no_reasons_are_given_for_belongs_to_a_part_that_is_not_built() -> None:
    reasoned = {int(n) for n in re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.M)}
    words = module_words()
    waiting = {d.number for d in DECISIONS if any(not is_built(part, words) for part in d.needs)}
    assert {d.number for d in DECISIONS} - reasoned - waiting == {37}


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda d: str(d.number))
def test_every_setting_and_every_place_is_there(decision: Decision) -> None:
    told = answer(decision, CONFIG, module_words())
    assert len(told) >= 1
    assert len(told) >= len(decision.settings) + len(decision.code)


def test_a_changed_setting_is_printed_changed() -> None:
    other = CONFIG.replace(scorer=CONFIG.scorer.replace(margin=0.25))
    assert setting(CONFIG, "scorer.margin") == "`scorer.margin` 0.05"
    assert setting(other, "scorer.margin") == "`scorer.margin` 0.25"


def test_a_choice_is_printed_with_its_alternatives() -> None:
    assert setting(CONFIG, "scorer.key") == "`scorer.key` action (or visual)"


@pytest.mark.parametrize("path", ["scorer.marginal", "scores.margin", "scorer.margin.low"])
def test_a_setting_that_is_gone_is_an_error(path: str) -> None:
    with pytest.raises(InputError, match="has no"):
        setting(CONFIG, path)


def test_a_name_that_is_gone_is_an_error() -> None:
    with pytest.raises(InputError, match="has no"):
        place("trajpilot_core.training.losses:cosine_lost")


def test_a_constant_is_printed_with_its_value() -> None:
    assert place("schemas.observation:MOTIONS") == "`MOTIONS` in `schemas/observation.py`: 16"


def test_parts_that_are_called_not_built_have_no_module() -> None:
    words = module_words()
    assert "predictor" in words
    assert [part for part in PARTS if is_built(part, words)] == []


@pytest.mark.parametrize("part", list(PARTS))
def test_a_module_with_the_name_of_a_part_ends_its_being_not_built(part: str) -> None:
    words = module_words() | {PARTS[part][0]}  # type: ignore[index]
    waiting = [d for d in DECISIONS if part in d.needs]
    for decision in waiting:
        assert f"**not built**: {part}" in answer(decision, CONFIG, module_words())
        assert f"**not built**: {part}" not in answer(decision, CONFIG, words)


def test_values_are_printed_in_words() -> None:
    assert [in_words(v) for v in (None, True, False, (0.1, 2), "x")] == ["none", "yes", "no", "0.1, 2", "x"]
