"""The table of decisions reads its values from the code, so it cannot say what the code does not do."""

import re

import pytest
from checkout import CHECKOUT

from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.studies.paper_audit.decisions import MISSING, in_words, location, renewed, setting
from trajpilot_core.studies.paper_audit.page import decisions_block

CONFIG = PipelineConfig()
PAGE = (CHECKOUT / "docs" / "reproduction.md").read_text()
REASONS = (CHECKOUT / "docs" / "decisions" / "paper-gaps.md").read_text()
TABLE = PAGE.split("<!-- computed: decisions -->")[1].split("<!-- end -->")[0]
ROWS = {int(n): line for line in TABLE.splitlines() if (n := line.split("|")[1].strip() if line else "").isdigit()}
PARTS: dict[str, tuple[str, ...]] = {
    "search over trajectories by distance to the goal": ("cem",),
    "conditioning study": ("conditioning",),
}
"""Part of the paper -> words of which one would stand in the name of a module that builds it (a reader does not)."""
REASONED = {int(n) for n in re.findall(r"^\| (\d+) \|", REASONS, re.M)}


def module_words() -> set[str]:
    """Return the words of the names of all modules and packages of the core."""
    return {word for path in (CHECKOUT / "trajpilot_core").rglob("*.py") for word in path.stem.split("_")} | {
        word for path in (CHECKOUT / "trajpilot_core").rglob("*/") for word in path.name.split("_")
    }


def called_not_built_but_built(page: str, words: set[str]) -> list[str]:
    """Return the parts that a page calls not built though a module has the name of one that builds it.

    A part of an unknown name is an error: nobody would see that it is built.
    """
    entries = [entry.strip() for line in page.splitlines() for entry in re.split(r"[;|]", line)]
    parts = {found[1] for entry in entries if (found := MISSING.fullmatch(entry))}
    return sorted(part for part in parts if words & set(PARTS[part]))


def test_the_decisions_are_numbered_without_a_gap() -> None:
    assert list(ROWS) == list(range(1, 53))


def test_every_decision_of_the_page_of_reasons_is_in_the_table() -> None:
    assert set(ROWS) >= REASONED
    assert not [n for n, line in ROWS.items() if not line.split("|")[4].strip()]


def test_every_decision_has_its_reasons_and_none_waits_for_a_part() -> None:
    assert set(ROWS) == REASONED
    assert not [number for number, line in ROWS.items() if "**not built**" in line]


@pytest.mark.parametrize("number", ROWS)
def test_every_setting_and_every_place_is_there(number: int) -> None:
    cell = ROWS[number].split("|")[4].strip()
    assert renewed(cell, CONFIG) == cell


def test_a_changed_setting_is_printed_changed() -> None:
    other = CONFIG.replace(scorer=CONFIG.scorer.replace(margin=0.25))
    assert setting(CONFIG, "scorer.margin") == "`scorer.margin` 0.05"
    assert renewed("`scorer.margin` 0.05; `scorer.strict` no", other) == "`scorer.margin` 0.25; `scorer.strict` no"


def test_a_stale_value_in_the_page_is_renewed() -> None:
    stale = "| D | q | r | a |\n| --- | --- | --- | --- |\n| 31 | q | r | `scorer.margin` 0.5 |\n"
    assert "| 31 | q | r | `scorer.margin` 0.05 |" in decisions_block(stale)
    with pytest.raises(InputError, match="3 columns"):
        decisions_block(stale.replace("| q | r | `", "| q | `"))


def test_a_choice_is_printed_with_its_alternatives() -> None:
    assert setting(CONFIG, "scorer.key") == "`scorer.key` action (or visual)"


@pytest.mark.parametrize("path", ["scorer.marginal", "scores.margin", "scorer.margin.low"])
def test_a_setting_that_is_gone_is_an_error(path: str) -> None:
    with pytest.raises(InputError, match="has no"):
        setting(CONFIG, path)


def test_a_name_a_file_or_an_entry_that_is_gone_is_an_error() -> None:
    with pytest.raises(InputError, match="has no"):
        location("training/losses", "cosine_lost")
    with pytest.raises(InputError, match="there is no training/lost"):
        renewed("`cosine_loss` in `training/lost.py`", CONFIG)
    with pytest.raises(InputError, match="is no setting"):
        renewed("as the paper says", CONFIG)
    with pytest.raises(KeyError, match="cooking"):
        called_not_built_but_built("| **not built**: cooking |", module_words())


def test_a_constant_is_printed_with_its_value() -> None:
    assert location("schemas/observation", "MOTIONS") == "`MOTIONS` in `schemas/observation.py`: 16"


def test_parts_that_are_called_not_built_have_no_module() -> None:
    words = module_words()
    assert "predictor" in words
    assert called_not_built_but_built(PAGE, words) == []


@pytest.mark.parametrize("part", list(PARTS))
def test_a_module_with_the_name_of_a_part_ends_its_being_not_built(part: str) -> None:
    cell = f"`scorer.margin` 0.05; **not built**: {part}"
    assert renewed(cell, CONFIG) == cell
    assert called_not_built_but_built(cell, module_words()) == []
    assert called_not_built_but_built(cell, module_words() | {PARTS[part][0]}) == [part]


def test_values_are_printed_in_words() -> None:
    assert [in_words(v) for v in (None, True, False, (0.1, 2), "x")] == ["none", "yes", "no", "0.1, 2", "x"]
