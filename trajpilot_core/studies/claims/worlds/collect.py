"""Gather what the worlds of the claims have left behind into the tables that are published under docs/claims."""

import datetime
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import polars as pl
import pyarrow as pa
from pydantic import JsonValue

from schemas.arrow import rows_of
from schemas.artifacts import RunRecord
from schemas.base import Record, fingerprint
from schemas.claims import ClaimsConfig, ClaimScore, ClaimsJob, ClaimsRun, sweep_worlds
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.errors import InputError
from trajpilot_core.metrics import with_ceiling
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest, read_run_record
from trajpilot_core.store.reading import read_entry_table
from trajpilot_core.studies.claims.evidence.tables import (
    FILES,
    METRICS,
    RUN_FILE,
    Origin,
    origins_of,
    write_claims_table,
)
from trajpilot_core.studies.claims.worlds.jobs import PROCESS_JOB, WORLD_JOB, WorldsRoot, read_made
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, Recipes, options_of, planned, shared
from trajpilot_core.studies.claims.worlds.provenance import machine, recipe_sizes, version, world_sizes
from trajpilot_core.studies.claims.worlds.stages import stages_of


class Made(NamedTuple):
    """One run of a stage: equal for every world that linked what it left behind."""

    stage: str
    key: str
    run_record: RunRecord


class Gathered(NamedTuple):
    """What one world has to show."""

    jobs: tuple[ClaimsJob, ...]
    rows: dict[str, list[Record]]
    """Published table -> its rows."""
    made: dict[str, Made]
    """Stage -> the run that computed what it holds now, where it is known."""


def publish(
    cfg: ClaimsConfig, recipes: Recipes, runs: WorldsRoot, folder: Path, reported: Sequence[ClaimsJob]
) -> ClaimsRun:
    """Write every table of the claims into `folder`, from those stages alone that are up to date.

    Args:
        cfg: which worlds there are.
        recipes: what is computed in them.
        runs: where they lie.
        folder: docs/claims.
        reported: the outcome of jobs just now; the reasons of those that failed or were not run are published.

    Raises:
        InputError: a table in `folder` would lose a world and seed; nothing is written.
    """
    worlds = planned(cfg)
    gathered = {world: gather(world, recipes, runs) for world in worlds}
    tables = {file.name: _rows(gathered, cfg, file.name) for file in FILES}
    refuse_loss(folder, {name: {at for at, _ in rows} for name, rows in tables.items()}, runs)
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        write_claims_table(folder, name, rows)
    reported = [job.replace(note=job.note.replace(f"{runs.root}/", "")) for job in reported]
    jobs = with_reasons(counted_once(gathered), reported)
    started = sorted(job.started for job in jobs if job.started)
    made = [run for found in gathered.values() for run in found.made.values()]
    run = ClaimsRun(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        config_digest=digest_of(cfg, recipes),
        machine=machine(),
        device="cuda" if runs.device.startswith("cuda") else "cpu",
        jobs=jobs,
        first_started=started[0] if started else "",
        last_started=started[-1] if started else "",
        elsewhere=sum(run.run_record.host != platform.node() for run in made),
        version=version(),
        worlds=world_sizes({name: world for world in worlds for name in published_names(world, cfg, "scores")}),
        recipes=recipe_sizes(recipes, worlds),
    )
    (folder / RUN_FILE).write_text(run.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return run


def _rows(gathered: Mapping[PlannedWorld, Gathered], cfg: ClaimsConfig, table: str) -> list[tuple[Origin, Record]]:
    """Return the rows of one table with the worlds and seeds that they are published under."""
    return [
        (Origin(name, world.seed), row)
        for world, found in gathered.items()
        for name in published_names(world, cfg, table)
        for row in found.rows.get(table, ())
    ]


def refuse_loss(folder: Path, kept: Mapping[str, set[Origin]], runs: WorldsRoot) -> None:
    """Refuse to write tables that hold fewer worlds and seeds than those that lie there.

    Args:
        folder: docs/claims.
        kept: table -> what it would hold.
        runs: where the worlds lie, for the message.

    Raises:
        InputError: with what would be lost.
    """
    losses = [
        f"{file.name}.parquet would lose {', '.join(f'{world} seed {seed}' for world, seed in gone)}"
        for file in FILES
        if (gone := sorted(origins_of(folder, file) - kept[file.name]))
    ]
    if losses:
        raise InputError(
            f"{folder} holds more than {runs.root} has computed with this configuration: {'; '.join(losses)}. Nothing "
            "was written; write the pages elsewhere (--docs), finish the run of those worlds, or delete the tables"
        )


def refuse_before(cfg: ClaimsConfig, runs: WorldsRoot, folder: Path, chosen: Sequence[PlannedWorld]) -> None:
    """Refuse at once what `publish` must refuse in the end: worlds in the tables that are neither computed nor planned.

    Raises:
        InputError: with what would be lost.
    """
    there = [world for world in planned(cfg) if world in chosen or (Path(runs.root) / world.folder).is_dir()]
    kept = {
        file.name: {Origin(name, world.seed) for world in there for name in published_names(world, cfg, file.name)}
        for file in FILES
    }
    refuse_loss(folder, kept, runs)


def counted_once(gathered: Mapping[PlannedWorld, Gathered]) -> list[ClaimsJob]:
    """Return the jobs of all worlds; seconds of an output that several worlds hold by a link count for the first."""
    first: dict[tuple[str, str, str], str] = {}
    jobs = []
    for world, found in gathered.items():
        for job in found.jobs:
            run = found.made.get(job.job)
            if run is None:
                jobs.append(job)
                continue
            here = f"{world.name}, seed {world.seed}"
            owner = first.setdefault((run.stage, run.key, run.run_record.digest()), here)
            jobs.append(job if owner == here else job.replace(seconds=None, shared_with=owner))
    return jobs


def with_reasons(jobs: Sequence[ClaimsJob], reported: Sequence[ClaimsJob]) -> tuple[ClaimsJob, ...]:
    """Say of every job that is not done why, as far as it was reported.

    The failure of a world as a whole (`jobs.PROCESS_JOB`) is that of its first job that is not done; later ones wait.
    """
    reasons = {(job.world, job.seed, job.job): job for job in reported if job.status != "done"}
    broken: dict[tuple[str, int], str] = {}
    found: list[ClaimsJob] = []
    for job in jobs:
        at = (job.world, job.seed)
        whole = reasons.get((*at, PROCESS_JOB))
        if job.status == "done":
            found.append(job)
        elif whole is None:
            found.append(reasons.get((*at, job.job), job))
        else:
            found.append(job.replace(note=f"{broken[at]} failed") if at in broken else whole.replace(job=job.job))
            broken.setdefault(at, job.job)
    return tuple(found)


def published_names(world: PlannedWorld, cfg: ClaimsConfig, table: str) -> tuple[str, ...]:
    """Return the names under which rows stand: a control stands for the sweep's world of its settings, too."""
    if table not in ("scores", "ceilings") or world.seed != cfg.sweep_seed:
        return (world.name,)
    return (world.name, *(name for name in sweep_worlds(cfg) if shared(name, cfg) == world.name))


def gather(world: PlannedWorld, recipes: Recipes, runs: WorldsRoot) -> Gathered:
    """Read what the up-to-date stages of one world have written."""
    config, options = recipes.of(world), options_of(world, Path(runs.root), runs.device)
    fresh = fresh_stages(world, config, options)
    folder = open_folder(options.root, options.protocols) if fresh else None
    jobs = [_world_job(world, Path(options.root), bool(fresh))]
    rows: dict[str, list[Record]] = {}
    made: dict[str, Made] = {}
    for name in stages_of(world):
        if folder is None or name not in fresh:
            jobs.append(world.job(name, "not run"))
            continue
        run = made_by(folder, name)
        made |= {name: run} if run is not None else {}
        jobs.append(world.job(name, "done").replace(**({} if run is None else _times(run.run_record))))
        for table, found in entries_of(folder, name).items():
            rows.setdefault(table, []).extend(with_seed(found, world.seed))
    return Gathered(tuple(jobs), rows, made)


def _world_job(world: PlannedWorld, root: Path, is_done: bool) -> ClaimsJob:
    """Return the job that makes a world's files; its time is known where one call made all of them."""
    made = read_made(root) if is_done else None
    job = world.job(WORLD_JOB, "done" if is_done else "not run")
    return job if made is None else job.replace(seconds=made.seconds, started=made.started)


def _times(run_record: RunRecord) -> dict[str, object]:
    """Return when a run began and how long it took; not how long, where an earlier run had done a part of it."""
    return {"started": run_record.started, "seconds": None if run_record.reused else round(run_record.seconds, 1)}


def fresh_stages(world: PlannedWorld, config: PipelineConfig, options: RunOptions) -> frozenset[str]:
    """Return the stages whose output belongs to this configuration."""
    if not Path(options.root).is_dir():
        return frozenset()
    return frozenset(row.stage for row in plan(stages_of(world), config, options) if row.state == "fresh")


def made_by(folder: Folder, stage: str) -> Made | None:
    """Return the run that computed what a stage holds now; None where it is not known."""
    manifest = current_manifest(folder, stage)
    run_record = None if manifest is None else read_run_record(folder, stage, manifest.key)
    return None if manifest is None or run_record is None else Made(stage, manifest.key, run_record)


def entries_of(folder: Folder, stage: str) -> dict[str, list[Record]]:
    """Return published table -> its rows, of what one stage holds now."""
    manifest = current_manifest(folder, stage)
    found: dict[str, list[Record]] = {}
    if manifest is None:
        return found
    for file in FILES:
        for entry in [entry for entry in file.entries if entry in manifest.entries]:
            table = read_entry_table(folder, manifest, entry)
            table = published(table) if file.row is ClaimScore else table
            found.setdefault(file.name, []).extend(rows_of(file.row, table))
    return found


def published(scores: pa.Table) -> pa.Table:
    """Return take scores, a row per metric (`TakeScore`), with a column per metric (`ClaimScore`) instead."""
    frame = cast(pl.DataFrame, pl.from_arrow(scores))
    keys = ["variant", "seed", "take_id", "horizon", "n_windows"]
    wide = frame.pivot("metric", index=keys, values="total", maintain_order=True)
    return wide.rename(dict(zip(with_ceiling(), METRICS, strict=True))).select([*keys, *METRICS]).to_arrow()


def with_seed(rows: Iterable[Record], seed: int) -> list[Record]:
    """Give rows of the ceilings, which know no seed, the seed of their world."""
    return [row.replace(seed=seed) if getattr(row, "seed", None) == -1 else row for row in rows]


LATER: Mapping[str, tuple[str, ...]] = {"alignment": ("fold_seed",), "evaluation": ("joint", "plus_parts")}
"""Settings that came after the run of 2026-11-21 was fixed: the folds' seed is that of each world, and the others add
rows to the tables and change none that was there. Whoever fixes worlds and recipes anew takes them in and empties this.
"""
SWITCHES: Mapping[str, tuple[str, ...]] = {"predictor": ("cosine_weights", "mixed_horizons", "standardise")}
"""Settings that came after it, too, and are left out as long as they have the values under which nothing changes."""


def digest_of(cfg: ClaimsConfig, recipes: Recipes) -> str:
    """Return one digest over the sizes, the worlds and what is computed in them."""
    worlds = [world.world.content() for world in planned(cfg)]
    return fingerprint([cfg.content(), *(_settings_that_were_fixed(recipe) for recipe in recipes), *worlds])


def _settings_that_were_fixed(recipe: PipelineConfig) -> dict[str, JsonValue]:
    """Return the settings of a recipe but those that came after the run whose digest is `RUN_DIGEST`."""
    content, plain = recipe.content(), PipelineConfig().content()
    left_out = {group: set(names) for group, names in LATER.items()}
    for group, names in SWITCHES.items():
        left_out[group] = {
            name for name in names if settings_of(content, group)[name] == settings_of(plain, group)[name]
        }
    for group, some in left_out.items():
        kept = {name: value for name, value in settings_of(content, group).items() if name not in some}
        content = {**content, group: kept}
    return content


def settings_of(content: Mapping[str, JsonValue], group: str) -> dict[str, JsonValue]:
    """Return one group of settings."""
    settings = content[group]
    assert isinstance(settings, dict)
    return settings
