"""The worlds of the claims as tasks: each in a process of its own, resumable stage by stage."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from prefect import State, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Failed

from schemas.claims import ClaimsJob
from schemas.config import PipelineConfig
from tasks.artifacts import artifact_key, log_line
from trajpilot_core.markdown_escape import literal
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot, run_apart
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld

LOG = logging.getLogger("trajpilot")


@contextmanager
def fault_is_logged(world: str) -> Iterator[None]:
    """Log a fault of the program where it happens: the flow raises it in the end, hours later."""
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            LOG.error("%-13s stopped: %r; the other worlds go on", world, sys.exception())


@task(task_run_name="{world.name}-s{world.seed}", cache_policy=NO_CACHE, persist_result=False)
def compute_world(world: PlannedWorld, recipe: PipelineConfig, runs: WorldsRoot) -> State[tuple[ClaimsJob, ...]]:
    """Compute one world; a failed one is reported with its reason and does not stop the others."""
    started = time.monotonic()
    LOG.info("%-13s started", world.folder)
    with fault_is_logged(world.folder):
        jobs = run_apart(world, recipe, runs)
    seconds = time.monotonic() - started
    create_table_artifact(
        table=[
            {"job": job.job, "status": job.status, "seconds": job.seconds, "note": literal(job.note)} for job in jobs
        ],
        key=artifact_key(f"claims-{world.folder}"),
        description=f"**{world.folder}**",
    )
    bad = next((job for job in jobs if job.status == "failed"), None)
    if bad is not None:
        message = f"{bad.job} failed: {bad.note}"
        log_line(world.folder, message, seconds)
        return cast("State[tuple[ClaimsJob, ...]]", Failed(message=message, data=jobs))
    computed = sum(job.seconds is not None for job in jobs)
    message = f"reused {len(jobs) - computed}, computed {computed} of {len(jobs)} jobs"
    log_line(world.folder, message, seconds)
    name = "Completed" if computed else "Cached"
    return cast("State[tuple[ClaimsJob, ...]]", Completed(name=name, message=message, data=jobs))
