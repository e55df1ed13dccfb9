"""Compute the worlds of the claims, each in a process of its own; whatever is finished is reused.

A job is one stage of one world, and what a stage trains are its shards: run again, it goes on where it stopped, inside
a training at its last checkpoint.
"""

import datetime
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from schemas.claims import ClaimsJob, WorldMade
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import AnyStage, no_progress
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.runtime import worker_pool
from trajpilot_core.simworld.feature_space import describe_world
from trajpilot_core.simworld.pool import start_drawing
from trajpilot_core.simworld.write import write_world
from trajpilot_core.store.lock import root_lock
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, config_of, options_of
from trajpilot_core.studies.claims.worlds.stages import stages_of

WORLD_JOB = "world"
PROCESS_JOB = "process"
"""Stands for a world whose progress is unknown."""
MADE_FILE = "world_made.json"
"""In the root of a world: `schemas.claims.WorldMade`."""
LOCK_WAIT_S = 3600.0


class WorldsRoot(NamedTuple):
    """Where worlds are computed."""

    root: str
    """Each world has a folder of its own below."""
    device: str


def run_apart(world: PlannedWorld, recipe: PipelineConfig, runs: WorldsRoot) -> tuple[ClaimsJob, ...]:
    """Compute one world in a spawned process that ends with this one; returns what became of each of its jobs."""
    with worker_pool(1, start_drawing) as pool:
        try:
            return pool.submit(run_world, world, recipe, runs).result()
        except BrokenProcessPool:
            note = "its process crashed (killed, or out of memory); run again"
            return (failure(world, note),)


def failure(world: PlannedWorld, note: str) -> ClaimsJob:
    """Return the failure of a world as a whole; what was finished before it is found in the store."""
    return world.job(PROCESS_JOB, "failed", note=note)


def run_world(world: PlannedWorld, recipe: PipelineConfig, runs: WorldsRoot) -> tuple[ClaimsJob, ...]:
    """Bring every stage of one world up to date, in order; after a failure the rest is not run."""
    config, options = config_of(world, recipe), options_of(world, Path(runs.root), runs.device)
    done: list[ClaimsJob] = []
    names = [WORLD_JOB, *stages_of(world)]
    with root_lock(options.root, LOCK_WAIT_S):
        for name in names:
            try:
                done.append(run_job(world, name, config, options))
            except (TrajPilotError, OSError) as error:
                done.append(world.job(name, "failed", note=f"{type(error).__name__}: {error}"))
                break
    missing = names[len(done) :]
    return (*done, *(world.job(name, "not run", note=f"{done[-1].job} failed") for name in missing))


def run_job(world: PlannedWorld, name: str, config: PipelineConfig, options: RunOptions) -> ClaimsJob:
    """Run one job; the seconds are those of the run that computed its output, not of this check of it."""
    if name == WORLD_JOB:
        made = make_world(world, Path(options.root), Path(options.data_root))
        return world.job(name, "done", None if made is None else made.seconds)
    stages: dict[str, AnyStage] = stages_of(world)
    outcome = execute(stages[name], config, options, stages)
    return world.job(name, "done", None if outcome.cached else round(outcome.seconds, 1))


def make_world(world: PlannedWorld, root: Path, folder: Path) -> WorldMade | None:
    """Write the world's files, or its description where it enters by features; a finished one is left alone.

    Returns:
        When it was made, which is kept in `root` too; None where this call did not make all of it.
    """
    started, clock = datetime.datetime.now(datetime.UTC), time.monotonic()
    if world.world.enters_by_features():
        is_whole = not (folder / "world.json").exists()
        describe_world(world.world, folder)
    else:
        summary = write_world(world.world, folder, 1, no_progress)
        is_whole = summary.written == summary.n_takes
    if not is_whole:
        return None
    seconds = round(time.monotonic() - clock, 1)
    made = WorldMade(started=started.isoformat(timespec="seconds"), seconds=seconds)
    (root / MADE_FILE).write_text(made.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return made


def read_made(root: Path) -> WorldMade | None:
    """Return when the world of a root was made; None where it was not timed."""
    path = root / MADE_FILE
    return WorldMade.model_validate_json(path.read_bytes()) if path.is_file() else None
