"""The worlds of the claims: what is planned, going on where it stopped, and failures that are told, not hidden."""

from pathlib import Path

import pytest

from schemas.claims import FEATURE_SPACE, NO_INFORMATION, ClaimsConfig, sweep_worlds
from schemas.config import PipelineConfig
from schemas.training import TrainConfig
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.studies.claims.evidence.tables import read_evidence
from trajpilot_core.studies.claims.worlds.collect import gather, publish, published_names
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot, run_apart, run_world
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, Recipes, chosen, dated_world, make, planned, shared
from trajpilot_core.studies.claims.worlds.stages import stages_of

CFG = ClaimsConfig()


def quick() -> PipelineConfig:
    """Trainings of one epoch: this is about jobs, not about accuracy."""
    base = PipelineConfig()
    short = TrainConfig(epochs=1, patience=None, batch=64)
    return base.replace(
        ingest=base.ingest.replace(video="full", dev_min=1, central_share=0.6),
        features=base.features.replace(model="tiny", size_px=64, n_frames=2, batch=16),
        text_bank=base.text_bank.replace(encoder="bag_of_words", bag_width=32),
        alignment=base.alignment.replace(width=16, layers=1, heads=2, hidden=16, folds=1, train=short),
        predictor=base.predictor.replace(width=16, layers=1, heads=2, hidden=16, queries=1, train=short),
        scorer=base.scorer.replace(candidates=4, prefetch=8, width=16, heads=2, layers=1, ablations=(), train=short),
        evaluation=base.evaluation.replace(bootstrap=100, shuffles=1, headroom_pools=(1, 4)),
    )


def small(name: str, kind: str = "sweep") -> PlannedWorld:
    """A planned world, cut down to seconds."""
    world = make(name, 0, CFG)
    config = world.world.replace(tasks=2, positions=4, alternatives=2, train_takes=10, test_takes=6, segments=9)
    return world._replace(kind=kind, world=config)  # type: ignore[arg-type]


RECIPES = Recipes(quick(), quick())


def test_every_world_is_planned_once_and_knobs_that_two_names_share_are_computed_once() -> None:
    worlds = planned(CFG)
    assert len({world.folder for world in worlds}) == len(worlds)
    knobs = {(w.world.kappa, w.world.style) for w in worlds if w.kind in ("control", "sweep") and w.seed == 0}
    assert knobs == set(sweep_worlds(CFG).values())
    assert shared("sweep_k0_s0", CFG) == NO_INFORMATION
    assert shared("sweep_k3_s2", CFG) is None
    assert published_names(make(FEATURE_SPACE, 0, CFG), CFG, "scores") == (FEATURE_SPACE, "sweep_k1.5_s2")
    assert published_names(make(FEATURE_SPACE, 1, CFG), CFG, "scores") == (FEATURE_SPACE,)


def test_seeds_are_worlds_of_their_own_and_controls_differ_in_their_knob_alone() -> None:
    one, other = make("base", 0, CFG).world, make("base", 1, CFG).world
    assert one.replace(seed=other.seed) == other
    control, drawn = make("no_style", 2, CFG).world, make(FEATURE_SPACE, 2, CFG).world
    assert control.replace(style=drawn.style, name=drawn.name) == drawn


def test_a_stored_world_is_held_against_the_dated_one() -> None:
    world = make("sweep_k1.5_s4", 0, CFG).world
    assert dated_world(world) == world
    assert dated_world(world.replace(rho=0.5)) == world
    with pytest.raises(WorldError, match="plan no world"):
        dated_world(world.replace(name="mine"))


def test_an_unknown_world_is_refused_with_the_known_ones() -> None:
    assert [w.folder for w in chosen(CFG, ("base-s1", "no_style"))] == [
        "base-s1",
        "no_style-s0",
        "no_style-s1",
        "no_style-s2",
    ]
    with pytest.raises(InputError, match=r"called bass; the worlds are base, feature_space, .* like base-s0"):
        chosen(CFG, ("bass",))


@pytest.mark.slow
def test_a_world_is_computed_once_then_reused_and_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, place = small("sweep_k3_s2"), WorldsRoot(str(tmp_path / "root"), "cpu")
    first = run_apart(world, RECIPES, place)
    assert [job.status for job in first] == ["done"] * (1 + len(stages_of(world))), first
    assert all(job.seconds is not None for job in first[1:])
    again = run_world(world, RECIPES, place)
    assert all(job.seconds is None for job in again)
    monkeypatch.setattr(
        "trajpilot_core.studies.claims.worlds.collect.planned", lambda cfg: (world, small("sweep_k3_s4"))
    )
    run = publish(CFG, RECIPES, place, tmp_path / "claims", [])
    assert {(job.world, job.status) for job in run.jobs} == {("sweep_k3_s2", "done"), ("sweep_k3_s4", "not run")}
    evidence = read_evidence(tmp_path / "claims", CFG.horizons)
    rows = set(evidence.scores["sweep_k3_s2"][0].rows)
    assert {"no_traj", "endpoint_traj", "oracle", "ceiling/oracle"} <= rows
    assert "sweep_k3_s4" not in evidence.scores


@pytest.mark.slow
def test_another_configuration_finds_nothing_fresh(tmp_path: Path) -> None:
    world, place = small("sweep_k3_s2"), WorldsRoot(str(tmp_path), "cpu")
    run_world(world, RECIPES, place)
    other = RECIPES.frames.replace(text_bank=RECIPES.frames.text_bank.replace(bag_width=16))
    found = gather(world, Recipes(other, other), place)
    fresh = {job.job for job in found.jobs if job.status == "done"}
    assert fresh == {"world", "feature_space", "feature_space_features"}
    assert not found.rows.get("scores")


def test_a_world_that_fails_says_why_and_what_was_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "sweep_k3_s2-s0" / "world"
    folder.mkdir(parents=True)
    (folder / "world.json").write_text("{}")
    jobs = run_world(small("sweep_k3_s2"), RECIPES, WorldsRoot(str(tmp_path), "cpu"))
    assert jobs[0].status == "failed"
    assert "describes another world" in jobs[0].note
    assert {job.status for job in jobs[1:]} == {"not run"}


def test_the_learning_curve_changes_the_training_takes_alone() -> None:
    drawn = make(FEATURE_SPACE, CFG.sweep_seed, CFG).world
    for takes in CFG.curve_takes:
        world = make(f"takes_{takes}", CFG.sweep_seed, CFG)
        assert world.kind == "control"
        assert world.world == drawn.replace(name=world.name, train_takes=takes)
    assert CFG.frames_train_takes not in CFG.curve_takes
