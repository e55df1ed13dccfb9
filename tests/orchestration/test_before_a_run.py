"""Before a run starts: what is not built, and a disk without room for what its stages need, are named."""

import logging
import shutil
from pathlib import Path

import pytest

from deployments.machine_check import require_machine
from deployments.parts import MISSING, Waits, check_built
from deployments.recipes import RECIPES, recipe
from deployments.recipes.paper import atomic
from deployments.recipes.simulated import demo
from schemas.config import RunOptions
from schemas.world import demo_world
from trajpilot_core.errors import NotBuiltError, StoreError
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


@pytest.fixture(autouse=True)
def small_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=10_000_000)
    monkeypatch.setattr("trajpilot_core.store.lock.shutil.disk_usage", lambda path: usage)
    monkeypatch.setattr(logging.getLogger("trajpilot"), "propagate", True)


def test_a_simulated_world_that_the_disk_has_no_room_for_is_refused(tmp_path: Path) -> None:
    options = RunOptions(root=str(tmp_path), device="cpu")
    with pytest.raises(StoreError, match=r"a run needs 0\.\d+ GB under .*, but only 0\.01 GB is free there"):
        require_machine(demo(), options, demo_world())
    require_machine(demo(), options.replace(ignore_needs=True), demo_world())


def test_a_corpus_that_nobody_has_counted_is_refused_nothing_and_told_the_papers_figures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "trajpilot"):
        require_machine(atomic(), RunOptions(root=str(tmp_path), device="cpu"), None)
    assert "needs at most" in caplog.text
    assert "GB of disk, at the paper's sizes" in caplog.text
