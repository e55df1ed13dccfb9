"""Recipes whose later stages wait for parts, and those that have some of the stages only."""

import pytest

from deployments.parts import MISSING, PARTS, check_built, with_parts
from deployments.recipes import demo, recipe
from schemas.config import RecipeName, RunOptions
from trajpilot_core.errors import NotBuiltError
from trajpilot_core.stages import STAGES, selected


@pytest.mark.parametrize("name", sorted(MISSING))
def test_a_benchmark_whose_later_stages_wait_for_parts_names_them_and_the_stages_that_run(name: RecipeName) -> None:
    waiting = MISSING[name].parts
    with pytest.raises(NotBuiltError) as error:
        check_built(name, STAGES)
    said = str(error.value)
    assert all(part in said for parts in waiting.values() for part in parts)
    can = [stage for stage in STAGES if stage not in waiting]
    assert said.endswith(": " + " ".join(f"--only {stage}" for stage in can))
    assert {"ingest", "trajectories", "features", "text_bank"} <= set(can)
    check_built(name, can)


def test_a_run_that_names_no_stage_is_of_those_of_its_recipe_which_are_all_built() -> None:
    for name in PARTS:
        asked = selected(with_parts(RunOptions(recipe=name)), recipe(name))
        assert asked == list(PARTS[name])
        check_built(name, asked)
        assert selected(with_parts(RunOptions(recipe=name, only=("ingest",))), recipe(name)) == ["ingest"]
    assert selected(with_parts(RunOptions(recipe="demo")), demo()) == list(STAGES)
