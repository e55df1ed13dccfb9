"""The worlds of the claims: what is planned, going on where it stopped, and failures that are told, not hidden."""

from pathlib import Path

import pytest

from deployments.recipes.worlds import claims
from schemas.claims import BASE, ENTRIES, MAIN, NO_INFORMATION, ClaimsConfig, sweep_worlds, world_names
from schemas.config import PipelineConfig
from schemas.training import TrainConfig
from trajpilot_core.errors import InputError, WorldError
from trajpilot_core.studies.claims.evidence.tables import read_evidence
from trajpilot_core.studies.claims.worlds.collect import gather, publish
from trajpilot_core.studies.claims.worlds.cost import cost_s, plan_text
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot, run_apart, run_world
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, chosen, config_of, dated_world, make, planned
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


def small(name: str) -> PlannedWorld:
    """A planned world, cut down to seconds."""
    world = make(name, CFG.single_seed, CFG)
    config = world.world.replace(tasks=2, positions=4, alternatives=2, train_takes=10, test_takes=6, segments=9)
    return world._replace(world=config)


def test_every_world_is_planned_once_and_the_sweep_has_every_pair_of_knobs() -> None:
    worlds = planned(CFG)
    assert len({world.folder for world in worlds}) == len(worlds) == 3 * len(MAIN) + 9 + 3 + 3
    knobs = [(w.world.kappa, w.world.style) for w in worlds if w.kind == "sweep"]
    assert knobs == list(sweep_worlds(CFG).values())
    assert [w.folder for w in worlds[:3]] == ["base-s3", "no_style-s3", "no_information-s3"]


def test_no_seed_whose_test_figures_are_known_is_planned() -> None:
    assert min(world.seed for world in planned(CFG)) > 2


def test_seeds_are_worlds_of_their_own_and_controls_differ_in_their_knob_alone() -> None:
    one, other = make(BASE, 3, CFG).world, make(BASE, 4, CFG).world
    assert one.replace(seed=other.seed) == other
    control, base = make("no_style", 5, CFG).world, make(BASE, 5, CFG).world
    assert control.replace(style=base.style, name=base.name) == base
    assert {make(name, 3, CFG).world.entry for name in world_names(CFG) if name not in ENTRIES} == {"latents"}


def test_the_entries_are_the_same_takes_with_one_recipe() -> None:
    worlds = [make(name, CFG.single_seed, CFG) for name in ENTRIES]
    assert [world.world.entry for world in worlds] == ["video", "frames", "latents"]
    assert len({world.world.replace(entry="latents", name="x").digest() for world in worlds}) == 1
    assert len({config_of(world, claims()).digest() for world in worlds}) == 1


def test_the_variants_of_retrieval_attention_are_trained_where_the_square_reads_them() -> None:
    variants = {name: config_of(make(name, 3, CFG), claims()).attention.variants for name in (*MAIN, *ENTRIES)}
    whole = claims().attention.variants
    assert {name for name, trained in variants.items() if trained == whole} == {BASE, NO_INFORMATION}
    assert {trained for name, trained in variants.items() if name not in (BASE, NO_INFORMATION)} == {("both",)}


def test_a_stored_world_is_held_against_the_dated_one() -> None:
    world = make("sweep_k1.5_s4", 3, CFG).world
    assert dated_world(world) == world
    assert dated_world(world.replace(rho=0.5)) == world
    with pytest.raises(WorldError, match="plan no world"):
        dated_world(world.replace(name="mine"))


def test_an_unknown_world_is_refused_with_the_known_ones() -> None:
    assert [w.folder for w in chosen(CFG, ("base-s4", "no_style"))] == [
        "no_style-s3",
        "base-s4",
        "no_style-s4",
        "no_style-s5",
    ]
    with pytest.raises(InputError, match=r"called bass; the worlds are base, no_style, .* like base-s3"):
        chosen(CFG, ("bass",))


def test_the_learning_curve_changes_the_training_takes_alone_and_fits_all_of_them() -> None:
    base = make(BASE, CFG.single_seed, CFG).world
    for takes in CFG.curve_takes:
        world = make(f"takes_{takes}", CFG.single_seed, CFG)
        assert world.world == base.replace(name=world.name, train_takes=takes)
        alignment = config_of(world, claims()).alignment
        assert (alignment.folds, round(alignment.holdout_share * takes)) == (1, 0)
    assert CFG.train_takes not in CFG.curve_takes


def test_what_the_worlds_cost_is_listed_and_near_what_was_planned() -> None:
    lines = plan_text(planned(CFG), claims())
    assert len(lines) == len(planned(CFG)) + 1
    assert 8 < float(lines[-1].split("about ")[1].split()[0]) < 20
    assert not any("without" in line for line in lines), "a stage whose cost nobody estimates is named"
    curve, twice = make("takes_4000", 3, CFG), make("takes_8000", 3, CFG)
    assert cost_s(twice, claims())["predictor"] == pytest.approx(2 * cost_s(curve, claims())["predictor"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "rows"), [("sweep_k3_s2", {"ceiling/oracle"}), ("takes_500", {"no_traj", "oracle"})])
def test_a_world_is_computed_once_then_reused_and_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, rows: set[str]
) -> None:
    world, place = small(name), WorldsRoot(str(tmp_path / "root"), "cpu")
    first = run_apart(world, quick(), place)
    assert [job.status for job in first] == ["done"] * (1 + len(stages_of(world))), first
    assert all(job.seconds is not None for job in first[1:])
    again = run_world(world, quick(), place)
    assert all(job.seconds is None for job in again)
    absent = small("sweep_k3_s4")
    monkeypatch.setattr("trajpilot_core.studies.claims.worlds.collect.planned", lambda cfg: (world, absent))
    run = publish(CFG, quick(), place, tmp_path / "claims", [])
    assert {(job.world, job.status) for job in run.jobs} == {(name, "done"), ("sweep_k3_s4", "not run")}
    evidence = read_evidence(tmp_path / "claims", CFG.horizons)
    assert rows <= set(evidence.scores[name][CFG.single_seed].rows)
    assert "endpoint_traj" not in evidence.scores[name][CFG.single_seed].rows
    assert "sweep_k3_s4" not in evidence.scores


@pytest.mark.slow
def test_another_configuration_finds_nothing_fresh(tmp_path: Path) -> None:
    world, place = small("takes_500"), WorldsRoot(str(tmp_path), "cpu")
    run_world(world, quick(), place)
    other = quick().replace(text_bank=quick().text_bank.replace(bag_width=16))
    found = gather(world, other, place)
    fresh = {job.job for job in found.jobs if job.status == "done"}
    assert fresh == {"world", "feature_space", "feature_space_features"}
    assert not found.rows.get("scores")


def test_a_world_that_fails_says_why_and_what_was_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "sweep_k3_s2-s3" / "world"
    folder.mkdir(parents=True)
    (folder / "world.json").write_text("{}")
    jobs = run_world(small("sweep_k3_s2"), quick(), WorldsRoot(str(tmp_path), "cpu"))
    assert jobs[0].status == "failed"
    assert "describes another world" in jobs[0].note
    assert {job.status for job in jobs[1:]} == {"not run"}
