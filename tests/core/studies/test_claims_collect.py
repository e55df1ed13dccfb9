"""Publishing: nothing that lies there is lost, failures are told, an output counts once, times say what is known."""

import platform
from pathlib import Path

import polars as pl
import pytest
from claims_fixture import small_tables

from schemas.arrow import table_of
from schemas.artifacts import RunRecord
from schemas.claims import BASE, NO_STYLE, ClaimsConfig, ClaimsJob, WorldMade
from schemas.config import PipelineConfig
from schemas.results import GateRow
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.evidence.tables import (
    FILES,
    RUN_FILE,
    Origin,
    read_evidence,
    rows_by_origin,
    with_origin,
)
from trajpilot_core.studies.claims.worlds import collect
from trajpilot_core.studies.claims.worlds.collect import Gathered, publish, published_before, with_reasons
from trajpilot_core.studies.claims.worlds.jobs import MADE_FILE, WorldsRoot, failure, make_world, read_made
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, make
from trajpilot_core.studies.claims.worlds.provenance import commit_of, learned_on, machine, processor, version

CFG = ClaimsConfig()
RECIPE = PipelineConfig()
WORLDS = (make(BASE, 3, CFG), make(NO_STYLE, 3, CFG), make("takes_500", 3, CFG))
GATE = next(file for file in FILES if file.name == "gate")
PLACE = WorldsRoot("runs", "cpu")


def job(world: PlannedWorld, name: str, status: str = "done", seconds: float | None = 60.0) -> ClaimsJob:
    return ClaimsJob.model_validate(
        {"world": world.name, "seed": world.seed, "job": name, "status": status, "seconds": seconds}
    )


def run_record(started: str = "2026-11-23T10:00:00+00:00", reused: int = 0) -> RunRecord:
    return RunRecord(
        reused=reused, computed=1, removed=0, rejected=0, started=started, seconds=60.04, host=platform.node()
    )


def gathered(monkeypatch: pytest.MonkeyPatch, found: dict[PlannedWorld, Gathered]) -> None:
    """Let these be the planned worlds and what they hold."""
    monkeypatch.setattr(collect, "planned", lambda cfg: tuple(found))
    monkeypatch.setattr(collect, "gather", lambda world, recipe, place: found[world])


def gate_of(world: PlannedWorld, open_rate: float = 50.0) -> pl.DataFrame:
    """The gate of one world and seed, as it is published."""
    rows = [row for place, row in small_tables()["gate"] if place.seed == world.seed and isinstance(row, GateRow)]
    table = table_of(GateRow, [row.replace(open_rate=open_rate) for row in rows])
    return with_origin(table, GATE, Origin(world.name, world.seed))


def held(world: PlannedWorld, open_rate: float = 50.0, started: str = "") -> Gathered:
    """Two jobs of a world, done."""
    done = job(world, "features").replace(started=started)
    return Gathered((job(world, "world", seconds=None), done), {"gate": [gate_of(world, open_rate)]})


def nothing(world: PlannedWorld) -> Gathered:
    """A world that does not lie here."""
    return Gathered((job(world, "world", "not run", None), job(world, "features", "not run", None)), {})


def rates(folder: Path) -> dict[Origin, float]:
    """Return the open rate that is published of every world."""
    return {origin: frame["open_rate"][0] for origin, frame in rows_by_origin(folder, GATE).items()}


def test_worlds_are_published_as_they_come_whoever_computed_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = WORLDS
    gathered(monkeypatch, {one: held(one), two: nothing(two)})
    publish(CFG, RECIPE, PLACE, tmp_path, [])
    gathered(monkeypatch, {one: nothing(one), two: held(two, 70.0)})
    run = publish(CFG, RECIPE, PLACE, tmp_path, [])
    assert rates(tmp_path) == {Origin(BASE, 3): 50.0, Origin(NO_STYLE, 3): 70.0}
    assert {job.status for job in run.jobs} == {"done"}
    gathered(monkeypatch, {one: held(one, 60.0), two: nothing(two)})
    publish(CFG, RECIPE, PLACE, tmp_path, [])
    assert rates(tmp_path)[Origin(BASE, 3)] == 60.0, (
        "what was computed here again stands in the place of what was there"
    )


def test_tables_of_other_settings_are_never_mixed_with_these(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: a world computed with one setting, published next to one with another."""
    one, two, _ = WORLDS
    gathered(monkeypatch, {one: held(one), two: nothing(two)})
    publish(CFG, RECIPE, PLACE, tmp_path, [])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    other = RECIPE.replace(predictor=RECIPE.predictor.replace(dropout=0.4))
    gathered(monkeypatch, {one: nothing(one), two: held(two)})
    with pytest.raises(InputError, match=r"(?s)tables of other settings.*--docs"):
        publish(CFG, other, PLACE, tmp_path, [])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / RUN_FILE).unlink()
    with pytest.raises(InputError, match=f"without {RUN_FILE}"):
        published_before(CFG, RECIPE, tmp_path)


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


def test_a_stage_that_went_on_where_another_run_stopped_is_not_timed() -> None:
    assert collect._times(run_record())["seconds"] == 60.0
    assert collect._times(run_record(reused=3))["seconds"] is None
    assert collect._times(None) == {}


def test_the_run_says_when_on_what_and_how_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, curve = WORLDS
    days = ("2026-11-24T10:00:00+00:00", "2026-11-23T10:00:00+00:00")
    gathered(monkeypatch, {one: held(one, started=days[0]), two: held(two, started=days[1]), curve: nothing(curve)})
    run = publish(CFG, RECIPE, PLACE, tmp_path, [])
    assert (run.first_started, run.last_started) == (days[1], days[0])
    assert platform.node() not in (tmp_path / RUN_FILE).read_text()
    sizes = {size.world: size for size in run.worlds}
    assert (sizes[BASE].train_takes, sizes[BASE].test_takes, sizes[BASE].labels) == (1400, 400, 240)
    assert (sizes[BASE].entry, sizes["takes_500"].train_takes) == ("latents", 500)
    assert run.recipe is not None
    assert run.recipe.candidates == RECIPE.scorer.candidates
    assert read_evidence(tmp_path, CFG.horizons).run == run
    monkeypatch.setattr(collect, "machine", lambda: "another")
    assert publish(CFG, RECIPE, PLACE, tmp_path, []).machines == (*run.machines, "another")


def test_a_world_is_timed_by_the_call_that_makes_all_of_it(tmp_path: Path) -> None:
    world, root = make("sweep_k3_s2", 3, CFG), tmp_path
    assert read_made(root) is None
    made = make_world(world, root, root / "world")
    assert made is not None
    assert read_made(root) == made
    kept = (root / MADE_FILE).read_bytes()
    assert make_world(world, root, root / "world") is None
    assert (root / MADE_FILE).read_bytes() == kept


def test_a_world_that_was_made_before_anybody_timed_it_is_not_timed(tmp_path: Path) -> None:
    world = make("sweep_k3_s2", 3, CFG)
    assert collect._world_job(world, tmp_path, is_done=True).seconds is None
    (tmp_path / MADE_FILE).write_text(WorldMade(started="2026-11-23T10:00:00+00:00", seconds=7.5).model_dump_json())
    assert collect._world_job(world, tmp_path, is_done=True).seconds == 7.5
    assert collect._world_job(world, tmp_path, is_done=False).seconds is None


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
