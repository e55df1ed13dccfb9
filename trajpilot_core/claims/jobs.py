"""Compute the worlds of the claims, each in a process of its own; whatever is finished is reused.

A job is one stage of one world. The stages' store makes it resumable: run again, it goes on where it stopped.
"""

import multiprocessing
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from schemas.claims import ClaimsJob
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.claims.worlds import PlannedWorld, Recipes, options_of
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.simworld.drawn import describe_world
from trajpilot_core.simworld.pool import start_worker
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages.execute import execute
from trajpilot_core.stages.stage import Stage
from trajpilot_core.store.lock import root_lock

WORLD_JOB = "world"
SHARED_STAGE = "drawn_features"
"""Its key holds nothing of the motion, so worlds of one seed share its output."""
LOCK_WAIT_S = 3600.0
Told = Callable[[str], None]


class Place(NamedTuple):
    """Where worlds are computed."""

    root: str
    """Each world has a folder of its own below."""
    device: str


def run_apart(world: PlannedWorld, recipes: Recipes, place: Place) -> tuple[ClaimsJob, ...]:
    """Compute one world in a spawned process that ends with this one; returns what became of each of its jobs."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context, initializer=start_worker) as pool:
        try:
            return pool.submit(run_world, world, recipes, place).result()
        except BrokenProcessPool:
            note = "its process ended without a word (killed, or out of memory); run again"
            return (_job(world, "process", "failed", None, note),)


def run_world(world: PlannedWorld, recipes: Recipes, place: Place) -> tuple[ClaimsJob, ...]:
    """Bring every stage of one world up to date, in order; after a failure the rest is not run."""
    config, options = recipes.of(world), options_of(world, Path(place.root), place.device)
    done: list[ClaimsJob] = []
    names = [WORLD_JOB, *world.stages]
    with root_lock(options.root, LOCK_WAIT_S):
        for name in names:
            try:
                done.append(run_job(world, name, config, options))
            except (TrajPilotError, OSError) as error:
                done.append(_job(world, name, "failed", None, f"{type(error).__name__}: {error}"))
                break
    missing = names[len(done) :]
    return (*done, *(_job(world, name, "not run", None, f"{done[-1].job} failed") for name in missing))


def run_job(world: PlannedWorld, name: str, config: PipelineConfig, options: RunOptions) -> ClaimsJob:
    """Run one job; the seconds are those of the run that computed its output, not of this look at it."""
    if name == WORLD_JOB:
        make_world(world, Path(options.data_root))
        return _job(world, name, "done", None, "")
    if name == SHARED_STAGE:
        share_features(Path(options.root))
    stages: dict[str, Stage] = world.stages
    outcome = execute(stages[name], config, options, stages)
    return _job(world, name, "done", None if outcome.cached else round(outcome.seconds, 1), "")


def make_world(world: PlannedWorld, folder: Path) -> None:
    """Write the world's files, or its description where it enters by features; a finished one is left alone."""
    if world.world.door == "features":
        describe_world(world.world, folder)
    else:
        write_world(world.world, folder, 1, _no_progress)


def share_features(root: Path) -> None:
    """Link the features that another world of this seed has computed into `root`; keys decide whether they fit."""
    seed = root.name.rsplit("-", 1)[-1]
    for other in sorted(root.parent.glob(f"*-{seed}")):
        for manifest in sorted((other / "artifacts" / SHARED_STAGE).glob("*/manifest.json")):
            source = manifest.parent
            target = root / "artifacts" / SHARED_STAGE / source.name
            if not (target / manifest.name).exists() and source != target:
                temporary = target.with_name(f".{source.name}.{os.getpid()}")
                shutil.copytree(source, temporary, copy_function=os.link, dirs_exist_ok=True)
                if target.exists():
                    shutil.rmtree(target)
                temporary.rename(target)


def _no_progress(done: int, total: int, what: str) -> None:
    """Ignore how far a world is."""


def _job(world: PlannedWorld, name: str, status: str, seconds: float | None, note: str) -> ClaimsJob:
    return ClaimsJob.model_validate(
        {"world": world.name, "seed": world.seed, "job": name, "status": status, "seconds": seconds, "note": note}
    )
