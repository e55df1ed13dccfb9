"""Gather what the worlds of the claims have left behind into the tables that are published under docs/claims."""

import datetime
import os
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from schemas.arrow import rows_of
from schemas.base import Record, fingerprint
from schemas.claims import ClaimsConfig, ClaimsJob, ClaimsRun, sweep_worlds
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.claims.jobs import WORLD_JOB, Place
from trajpilot_core.claims.tables import FILES, RUN_FILE, Placed, write_claims_table
from trajpilot_core.claims.worlds import PlannedWorld, Recipes, options_of, planned, shared
from trajpilot_core.stages.plan import plan
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest, read_occasion
from trajpilot_core.store.reading import read_entry_table

ENTRIES = {
    "scores": ("take_scores",),
    "gate": ("gate",),
    "headroom": ("headroom",),
    "curves": ("alignment_curves", "predictor_curves", "scorer_curves"),
    "judgements": ("judgements",),
    "ceilings": ("ceilings",),
    "leaks": ("leaks",),
    "geometry": ("geometry",),
    "study": ("study",),
}
"""Published table -> entries of the store that it gathers."""


class Gathered(NamedTuple):
    """What one world has to show."""

    jobs: tuple[ClaimsJob, ...]
    rows: dict[str, list[Record]]
    """Published table -> its rows."""


def publish(cfg: ClaimsConfig, recipes: Recipes, place: Place, folder: Path, failed: Sequence[ClaimsJob]) -> ClaimsRun:
    """Write every table of the claims into `folder`, from those stages alone that are up to date.

    Args:
        cfg: which worlds there are.
        recipes: what is computed in them.
        place: where they lie.
        folder: docs/claims.
        failed: jobs that failed just now, with their reasons.
    """
    folder.mkdir(parents=True, exist_ok=True)
    worlds = planned(cfg)
    gathered = {world: gather(world, recipes, place) for world in worlds}
    for file in FILES:
        rows = [
            (Placed(name, world.seed), row)
            for world, found in gathered.items()
            for name in published_names(world, cfg, file.name)
            for row in found.rows.get(file.name, ())
        ]
        write_claims_table(folder, file.name, rows)
    reasons = {(job.world, job.seed, job.job): job for job in failed if job.status == "failed"}
    jobs = [
        reasons.get((job.world, job.seed, job.job), job) if job.status != "done" else job
        for found in gathered.values()
        for job in found.jobs
    ]
    run = ClaimsRun(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        config_digest=digest_of(cfg, recipes),
        machine=machine(),
        device="cuda" if place.device == "cuda" else "cpu",
        jobs=tuple(jobs),
    )
    (folder / RUN_FILE).write_text(run.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return run


def published_names(world: PlannedWorld, cfg: ClaimsConfig, table: str) -> tuple[str, ...]:
    """Return the names under which rows stand: a control stands for the world of the sweep with its knobs as well."""
    if table not in ("scores", "ceilings") or world.seed != cfg.sweep_seed:
        return (world.name,)
    return (world.name, *(name for name in sweep_worlds(cfg) if shared(name, cfg) == world.name))


def gather(world: PlannedWorld, recipes: Recipes, place: Place) -> Gathered:
    """Read what the up-to-date stages of one world have written."""
    config, options = recipes.of(world), options_of(world, Path(place.root), place.device)
    fresh = fresh_stages(world, config, options)
    folder = open_folder(options.root, options.protocols) if fresh else None
    jobs = [_job(world, WORLD_JOB, "done" if fresh else "not run", None)]
    rows: dict[str, list[Record]] = {}
    for name in world.stages:
        if folder is None or name not in fresh:
            jobs.append(_job(world, name, "not run", None))
            continue
        jobs.append(_job(world, name, "done", seconds_of(folder, name)))
        for table, found in entries_of(folder, name).items():
            rows.setdefault(table, []).extend(with_seed(found, world.seed))
    return Gathered(tuple(jobs), rows)


def fresh_stages(world: PlannedWorld, config: PipelineConfig, options: RunOptions) -> frozenset[str]:
    """Return the stages whose output belongs to this configuration."""
    if not Path(options.root).is_dir():
        return frozenset()
    return frozenset(row.stage for row in plan(world.stages, config, options) if row.state == "fresh")


def seconds_of(folder: Folder, stage: str) -> float | None:
    """Return the wall time of the run that computed what a stage holds now."""
    manifest = current_manifest(folder, stage)
    occasion = None if manifest is None else read_occasion(folder, stage, manifest.key)
    return None if occasion is None else round(occasion.seconds, 1)


def entries_of(folder: Folder, stage: str) -> dict[str, list[Record]]:
    """Return published table -> its rows, of what one stage holds now."""
    manifest = current_manifest(folder, stage)
    found: dict[str, list[Record]] = {}
    for file in FILES if manifest is not None else ():
        for entry in ENTRIES[file.name]:
            if manifest is not None and entry in manifest.entries:
                found.setdefault(file.name, []).extend(rows_of(file.row, read_entry_table(folder, manifest, entry)))
    return found


def with_seed(rows: Iterable[Record], seed: int) -> list[Record]:
    """Give rows of the ceilings, which know no seed, the seed of their world."""
    return [row.replace(seed=seed) if getattr(row, "seed", None) == -1 else row for row in rows]


def digest_of(cfg: ClaimsConfig, recipes: Recipes) -> str:
    """Return one digest over the sizes, the worlds and what is computed in them."""
    worlds = [world.world.model_dump(mode="json") for world in planned(cfg)]
    return fingerprint([cfg.model_dump(mode="json"), *(c.model_dump(mode="json") for c in recipes), *worlds])


def machine() -> str:
    """Return processor, cores and system, and no host name."""
    cores = len(os.sched_getaffinity(0))
    return f"{platform.machine()}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def _job(world: PlannedWorld, name: str, status: str, seconds: float | None) -> ClaimsJob:
    return ClaimsJob.model_validate(
        {"world": world.name, "seed": world.seed, "job": name, "status": status, "seconds": seconds}
    )
