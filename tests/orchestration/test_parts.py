"""A recipe whose later stages wait for parts names them before anything runs; none waits at present."""

import pytest

from deployments.parts import MISSING, Waits, check_built
from deployments.recipes import RECIPES, recipe
from trajpilot_core.errors import NotBuiltError
from trajpilot_core.stages import STAGES, stages_of


def test_a_benchmark_whose_later_stages_wait_for_parts_names_them_and_the_stages_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a recipe whose scorer is not built."""
    monkeypatch.setitem(MISSING, "keystep", Waits("cooking", {"scorer": ("a pot", "a pan"), "evaluation": ("a pot",)}))
    with pytest.raises(
        NotBuiltError, match=r"cooking\): scorer, evaluation cannot run, not built yet: a pot; a pan"
    ) as e:
        check_built("keystep", STAGES)
    can = [stage for stage in STAGES if stage not in ("scorer", "evaluation")]
    assert str(e.value).endswith(": " + " ".join(f"--only {stage}" for stage in can))
    check_built("keystep", can)
    check_built("goalstep", STAGES)


def test_every_recipe_is_built_to_its_last_stage() -> None:
    assert MISSING == {}
    for name in RECIPES:
        check_built(name, stages_of(recipe(name)))


def test_a_corpus_without_plans_has_the_stages_of_its_probe_and_of_the_token_where_it_is_asked_for() -> None:
    config = recipe("demo_epic_kitchens")
    assert list(stages_of(config)) == [
        *("ingest", "trajectories", "video_motions", "features", "text_bank", "alignment"),
        *("probe", "action_token", "report"),
    ]
    alone = config.replace(action_token=config.action_token.replace(is_asked=False))
    assert list(stages_of(alone)) == ["ingest", "features", "probe", "report"]
