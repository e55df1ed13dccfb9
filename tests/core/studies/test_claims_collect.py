"""Publishing: nothing that lies there is lost, failures are told, an output counts once, times say what is known."""

import os
import platform
from pathlib import Path

import pytest
from claims_fixture import Planted, evidence_of, small_tables, write_all

from schemas.artifacts import RunRecord
from schemas.base import Record
from schemas.claims import BASE, FEATURE_SPACE, NO_SCENE, NO_STYLE, ClaimsConfig, ClaimsJob, ClaimsRun, WorldMade
from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.evidence.tables import FILES, RUN_FILE, Origin, origins_of, read_evidence
from trajpilot_core.studies.claims.worlds import collect
from trajpilot_core.studies.claims.worlds.collect import (
    Gathered,
    Made,
    counted_once,
    publish,
    refuse_before,
    with_reasons,
)
from trajpilot_core.studies.claims.worlds.jobs import (
    MADE_FILE,
    SHARED_STAGE,
    WorldsRoot,
    failure,
    make_world,
    read_made,
    share_features,
)
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, Recipes, make, planned
from trajpilot_core.studies.claims.worlds.provenance import commit_of, learned_on, machine, processor, version

CFG = ClaimsConfig()
RECIPES = Recipes(PipelineConfig(), PipelineConfig())
WORLDS = (make(BASE, 0, CFG), make(FEATURE_SPACE, 0, CFG), make(NO_STYLE, 0, CFG))


def job(world: PlannedWorld, name: str, status: str = "done", seconds: float | None = 60.0) -> ClaimsJob:
    return ClaimsJob.model_validate(
        {"world": world.name, "seed": world.seed, "job": name, "status": status, "seconds": seconds}
    )


def run_record(started: str = "2026-11-21T10:00:00+00:00", host: str = "", reused: int = 0) -> RunRecord:
    return RunRecord(
        reused=reused, computed=1, removed=0, rejected=0, started=started, seconds=60.04, host=host or platform.node()
    )


def gathered(monkeypatch: pytest.MonkeyPatch, found: dict[PlannedWorld, Gathered]) -> None:
    """Let these be the planned worlds and what they hold."""
    monkeypatch.setattr(collect, "planned", lambda cfg: tuple(found))
    monkeypatch.setattr(collect, "gather", lambda world, recipes, place: found[world])


def held(world: PlannedWorld, rows: dict[str, list[Record]] | None = None, run: RunRecord | None = None) -> Gathered:
    """One stage of a world, done."""
    made = {"features": Made("features", "k", run)} if run else {}
    done = job(world, "features").replace(started=run.started if run else "")
    return Gathered((job(world, "world", seconds=None), done), rows or {}, made)


GATE = [row for place, row in small_tables()["gate"] if place.seed == 0]


def test_a_table_that_would_lose_a_world_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all(tmp_path, Planted(n_takes=2))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    gathered(monkeypatch, {WORLDS[0]: held(WORLDS[0], {"gate": GATE})})
    with pytest.raises(InputError, match=r"(?s)gate.parquet would lose base seed 1, base seed 2.*--docs"):
        publish(CFG, RECIPES, WorldsRoot("runs", "cpu"), tmp_path, [])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_table_that_only_gains_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered(monkeypatch, {WORLDS[0]: held(WORLDS[0], {"gate": GATE})})
    publish(CFG, RECIPES, WorldsRoot("runs", "cpu"), tmp_path, [])
    found = {WORLDS[0]: held(WORLDS[0], {"gate": GATE}), WORLDS[1]: held(WORLDS[1], {"gate": GATE})}
    gathered(monkeypatch, found)
    publish(CFG, RECIPES, WorldsRoot("runs", "cpu"), tmp_path, [])
    gate = next(file for file in FILES if file.name == "gate")
    assert origins_of(tmp_path, gate) == {Origin(BASE, 0), Origin(FEATURE_SPACE, 0)}


def test_a_fresh_clone_refuses_at_once_to_run_one_world_into_the_committed_tables(tmp_path: Path) -> None:
    evidence_of(tmp_path, Planted(n_takes=2))
    place, scene = WorldsRoot(str(tmp_path / "runs"), "cpu"), [make(NO_SCENE, 0, CFG)]
    with pytest.raises(InputError, match="would lose base seed 0"):
        refuse_before(CFG, place, tmp_path, scene)
    refuse_before(CFG, place, tmp_path / "elsewhere", scene)
    refuse_before(CFG, place, tmp_path, planned(CFG))
    for world in planned(CFG):
        (tmp_path / "runs" / world.folder).mkdir(parents=True)
    refuse_before(CFG, place, tmp_path, scene)


def test_the_failure_of_a_whole_world_is_that_of_its_first_job_that_is_not_done() -> None:
    base, other = WORLDS[0], WORLDS[1]
    jobs = [
        job(base, "ingest"),
        job(base, "features", "not run", None),
        job(base, "scorer", "not run", None),
        job(other, "feature_space", "not run", None),
    ]
    found = with_reasons(jobs, [failure(base, "its process crashed")])
    assert [(j.job, j.status, j.note) for j in found] == [
        ("ingest", "done", ""),
        ("features", "failed", "its process crashed"),
        ("scorer", "not run", "features failed"),
        ("feature_space", "not run", ""),
    ]


def test_the_reasons_of_jobs_that_were_told_are_kept() -> None:
    base = WORLDS[0]
    jobs = [job(base, "features", "not run", None), job(base, "scorer", "not run", None)]
    told = [
        job(base, "features", "failed", None).replace(note="StoreError: damaged"),
        job(base, "scorer", "not run", None).replace(note="features failed"),
    ]
    assert [j.note for j in with_reasons(jobs, told)] == ["StoreError: damaged", "features failed"]


def test_an_output_that_worlds_share_counts_once_and_one_that_was_computed_twice_counts_twice() -> None:
    linked, own = run_record(), run_record(started="2026-11-21T11:00:00+00:00")
    runs = dict(zip(WORLDS, (linked, linked, own), strict=True))
    found = counted_once({world: held(world, run=run) for world, run in runs.items()})
    told = [(j.world, j.seconds, j.shared_with) for j in found if j.job == "features"]
    assert told == [(BASE, 60.0, ""), (FEATURE_SPACE, None, "base, seed 0"), (NO_STYLE, 60.0, "")]


def test_a_stage_that_went_on_where_another_run_stopped_is_not_timed() -> None:
    assert collect._times(run_record())["seconds"] == 60.0
    assert collect._times(run_record(reused=3))["seconds"] is None


def test_the_run_says_when_on_what_and_how_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    early = run_record(started="2026-11-20T10:00:00+00:00", host="another")
    gathered(monkeypatch, {WORLDS[0]: held(WORLDS[0], run=run_record()), WORLDS[1]: held(WORLDS[1], run=early)})
    run = publish(CFG, RECIPES, WorldsRoot("runs", "cpu"), tmp_path, [])
    assert (run.first_started[:10], run.last_started[:10], run.elsewhere) == ("2026-11-20", "2026-11-21", 1)
    assert platform.node() not in (tmp_path / RUN_FILE).read_text()
    assert "another" not in (tmp_path / RUN_FILE).read_text()
    sizes = {size.world: size for size in run.worlds}
    assert (sizes[BASE].train_takes, sizes[BASE].test_takes, sizes[BASE].labels) == (400, 120, 240)
    assert (sizes[FEATURE_SPACE].train_takes, sizes["sweep_k1.5_s2"].train_takes) == (300, 300)
    assert [recipe.recipe for recipe in run.recipes] == ["video", "frames"]
    assert run.recipes[0].video == "192 px, 10 frames a second"
    assert "no video" in run.recipes[1].video
    evidence = read_evidence(tmp_path, CFG.horizons)
    assert evidence.run == run


def test_a_run_that_was_written_before_these_fields_were_there_is_read() -> None:
    text = (
        '{"date": "2026-11-21", "config_digest": "0", "machine": "2 cores", "device": "cpu", "jobs": '
        '[{"world": "base", "seed": 0, "job": "world", "status": "done", "seconds": null, "note": ""}]}'
    )
    run = ClaimsRun.model_validate_json(text)
    assert run.worlds == ()
    assert run.jobs[0].shared_with == ""


def test_a_world_is_timed_by_the_call_that_makes_all_of_it(tmp_path: Path) -> None:
    world, root = make("sweep_k3_s2", 0, CFG), tmp_path
    assert read_made(root) is None
    made = make_world(world, root, root / "world")
    assert made is not None
    assert read_made(root) == made
    kept = (root / MADE_FILE).read_bytes()
    assert make_world(world, root, root / "world") is None
    assert (root / MADE_FILE).read_bytes() == kept


def test_a_world_that_was_made_before_anybody_timed_it_is_not_timed(tmp_path: Path) -> None:
    world = make("sweep_k3_s2", 0, CFG)
    assert collect._world_job(world, tmp_path, is_done=True).seconds is None
    (tmp_path / MADE_FILE).write_text(WorldMade(started="2026-11-21T10:00:00+00:00", seconds=7.5).model_dump_json())
    assert collect._world_job(world, tmp_path, is_done=True).seconds == 7.5
    assert collect._world_job(world, tmp_path, is_done=False).seconds is None


def test_the_unfinished_copy_of_another_world_is_not_linked(tmp_path: Path) -> None:
    """The planted fault: a folder that another process is still copying, and that may vanish while it is read."""
    for key in ("k1", f".k2.{os.getpid()}"):
        source = tmp_path / "feature_space-s0" / "artifacts" / SHARED_STAGE / key
        source.mkdir(parents=True)
        (source / "manifest.json").write_text("{}")
    root = tmp_path / "no_style-s0"
    share_features(root)
    assert [path.name for path in (root / "artifacts" / SHARED_STAGE).iterdir()] == ["k1"]


def test_the_machine_is_named_by_processor_cores_and_memory_and_not_by_its_host(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Made Up 3000\n")
    assert processor(tmp_path / "cpuinfo") == "Made Up 3000"
    assert processor(tmp_path / "absent") == platform.machine()
    assert " cores, " in machine()
    assert "GiB memory" in machine()


def test_the_commit_is_read_from_the_checkout_where_there_is_one(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    git = tmp_path / ".git"
    git.mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "packed-refs").write_text("# pack-refs\n" + "b" * 40 + " refs/heads/main\n")
    assert version(tmp_path).endswith("commit " + "b" * 12)
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "refs" / "heads" / "main").write_text("c" * 40 + "\n")
    assert commit_of(tmp_path) == "c" * 40
    (git / "HEAD").write_text("d" * 40 + "\n")
    assert commit_of(tmp_path) == "d" * 40


def test_what_the_scorers_learn_on_is_said_for_both_recipes() -> None:
    base = PipelineConfig()
    folds = base.replace(alignment=base.alignment.replace(folds=2, fold_share=0.25))
    held_out = base.replace(alignment=base.alignment.replace(folds=1, holdout_share=0.25))
    assert learned_on(folds).startswith("2 folds of the training takes (each 25 %)")
    assert learned_on(held_out).startswith("25 % of the training takes, held out")
