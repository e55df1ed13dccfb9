"""Gather what the worlds of the claims have left behind into the tables that are published under docs/claims."""

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import polars as pl
import pyarrow as pa

from schemas import claims as fixed
from schemas.artifacts import RunRecord
from schemas.base import Record, fingerprint
from schemas.checks import LeakConfig, StudyConfig
from schemas.claims import LIMITS, ClaimsConfig, ClaimScore, ClaimsJob, ClaimsRun
from schemas.config import PipelineConfig, RunOptions
from schemas.world import LatentMapConfig
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest, read_run_record
from trajpilot_core.store.reading import read_entry_table
from trajpilot_core.studies.claims.evidence.tables import (
    COLUMNS,
    FILES,
    METRICS,
    RUN_FILE,
    File,
    Origin,
    rows_by_origin,
    with_origin,
    write_frames,
)
from trajpilot_core.studies.claims.worlds.jobs import PROCESS_JOB, WORLD_JOB, WorldsRoot, read_made
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, config_of, options_of, planned
from trajpilot_core.studies.claims.worlds.provenance import machine, recipe_size, version, world_sizes
from trajpilot_core.studies.claims.worlds.stages import stages_of


class Gathered(NamedTuple):
    """What one world has to show."""

    jobs: tuple[ClaimsJob, ...]
    rows: dict[str, list[pl.DataFrame]]
    """Published table -> its rows."""

    def n_done(self) -> int:
        """Return how many of its jobs are done."""
        return sum(job.status == "done" for job in self.jobs)


def publish(
    cfg: ClaimsConfig, recipe: PipelineConfig, runs: WorldsRoot, folder: Path, reported: Sequence[ClaimsJob]
) -> ClaimsRun:
    """Write every table of the claims into `folder`, from those stages alone that are up to date.

    What `folder` holds of worlds that were computed elsewhere with equal settings stays: they can be committed as they
    come.

    Args:
        cfg: which worlds there are.
        recipe: what is computed in them.
        runs: where they lie.
        folder: docs/claims.
        reported: the outcome of jobs just now; the reasons of those that failed or were not run are published.

    Raises:
        InputError: `folder` holds tables of other settings; nothing is written.
    """
    before, worlds = published_before(cfg, recipe, folder), planned(cfg)
    gathered = {Origin(world.name, world.seed): gather(world, recipe, runs) for world in worlds}
    if before is not None:
        gathered = with_kept(gathered, kept_worlds(folder, before))
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        write_frames(folder, file, [frame for world in gathered.values() for frame in world.rows.get(file.name, ())])
    reported = [job.replace(note=job.note.replace(f"{runs.root}/", "")) for job in reported]
    jobs = with_reasons([job for world in gathered.values() for job in world.jobs], reported)
    machines = tuple(dict.fromkeys((*(before.machines if before else ()), machine())))
    run = run_of(worlds, jobs, digest_of(cfg, recipe), runs, recipe).replace(machines=machines)
    (folder / RUN_FILE).write_text(run.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return run


def run_of(
    worlds: Sequence[PlannedWorld],
    jobs: Sequence[ClaimsJob],
    digest: str,
    runs: WorldsRoot,
    recipe: PipelineConfig | None,
) -> ClaimsRun:
    """Return when, where, on what and by which code tables are gathered now.

    Args:
        worlds: whose sizes are stated.
        jobs: of these worlds.
        digest: of what was computed.
        runs: where the worlds lie.
        recipe: whose sizes are stated; None: of none.
    """
    started = sorted(job.started for job in jobs if job.started)
    return ClaimsRun(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        config_digest=digest,
        machines=(machine(),),
        device="cuda" if runs.device.startswith("cuda") else "cpu",
        jobs=tuple(jobs),
        first_started=started[0] if started else "",
        last_started=started[-1] if started else "",
        version=version(),
        worlds=world_sizes(worlds),
        recipe=None if recipe is None else recipe_size(recipe),
    )


def published_before(cfg: ClaimsConfig, recipe: PipelineConfig, folder: Path) -> ClaimsRun | None:
    """Return the run whose tables lie in `folder`; None where there is none.

    Raises:
        InputError: it has other settings, or there are tables without a run.
    """
    path, here = folder / RUN_FILE, digest_of(cfg, recipe)
    if not path.is_file():
        alone = [file.name for file in FILES if (folder / f"{file.name}.parquet").is_file()]
        if alone:
            raise InputError(
                f"{folder} holds {', '.join(alone)} without {RUN_FILE}, so that nobody knows their settings; delete "
                "the tables, or write elsewhere (--docs)"
            )
        return None
    run = ClaimsRun.model_validate_json(path.read_bytes())
    if run.config_digest != here:
        raise InputError(
            f"{folder} holds tables of other settings (digest {run.config_digest[:12]}, these have {here[:12]}). "
            "Nothing was written; write the pages elsewhere (--docs), or delete the tables"
        )
    return run


def kept_worlds(folder: Path, before: ClaimsRun) -> dict[Origin, Gathered]:
    """Return what `folder` holds of each world and seed, as it would be gathered."""
    origins = dict.fromkeys(Origin(job.world, job.seed) for job in before.jobs)
    found = {at: Gathered(tuple(job for job in before.jobs if (job.world, job.seed) == at), {}) for at in origins}
    for file in FILES:
        for origin, frame in rows_by_origin(folder, file).items():
            found[origin].rows[file.name] = [frame]
    return found


def with_kept(gathered: Mapping[Origin, Gathered], before: Mapping[Origin, Gathered]) -> dict[Origin, Gathered]:
    """Put the worlds that were published before in the place of those of which less is done here."""
    kept = {at for at, world in gathered.items() if at in before and before[at].n_done() > world.n_done()}
    return {at: before[at] if at in kept else world for at, world in gathered.items()}


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


def gather(world: PlannedWorld, recipe: PipelineConfig, runs: WorldsRoot) -> Gathered:
    """Read what the up-to-date stages of one world have written."""
    config, options = config_of(world, recipe), options_of(world, Path(runs.root), runs.device)
    fresh = fresh_stages(stages_of(world), config, options)
    folder = open_folder(options.root, options.protocols) if fresh else None
    jobs = [_world_job(world, Path(options.root), bool(fresh))]
    rows: dict[str, list[pl.DataFrame]] = {}
    for name in stages_of(world):
        if folder is None or name not in fresh:
            jobs.append(world.job(name, "not run"))
            continue
        jobs.append(world.job(name, "done").replace(**_times(record_of(folder, name))))
        for table, frame in frames_of(folder, name, Origin(world.name, world.seed)):
            rows.setdefault(table, []).append(frame)
    return Gathered(tuple(jobs), rows)


def _world_job(world: PlannedWorld, root: Path, is_done: bool) -> ClaimsJob:
    """Return the job that makes a world's files; its time is known where one call made all of them."""
    made = read_made(root) if is_done else None
    job = world.job(WORLD_JOB, "done" if is_done else "not run")
    return job if made is None else job.replace(seconds=made.seconds, started=made.started)


def _times(record: RunRecord | None) -> dict[str, object]:
    """Return when a run began and how long it took, where it is known; not how long, where it went on with a part."""
    if record is None:
        return {}
    return {"started": record.started, "seconds": None if record.reused else round(record.seconds, 1)}


def fresh_stages(stages: Mapping[str, AnyStage], config: PipelineConfig, options: RunOptions) -> frozenset[str]:
    """Return those of the stages whose output belongs to this configuration."""
    if not Path(options.root).is_dir():
        return frozenset()
    return frozenset(row.stage for row in plan(stages, config, options) if row.state == "fresh")


def record_of(folder: Folder, stage: str) -> RunRecord | None:
    """Return the record of the run that computed what a stage holds now; None where it is not known."""
    manifest = current_manifest(folder, stage)
    return None if manifest is None else read_run_record(folder, stage, manifest.key)


def frames_of(folder: Folder, stage: str, origin: Origin) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield (published table, its rows) of what one stage holds now."""
    manifest = current_manifest(folder, stage)
    for file in FILES:
        for entry in [entry for entry in file.entries if manifest is not None and entry in manifest.entries]:
            assert manifest is not None
            table = read_entry_table(folder, manifest, entry)
            yield file.name, with_origin(published(table) if file.row is ClaimScore else table, file, origin)


def frames_of_file(folder: Folder, stages: Iterable[str], file: File, origin: Origin) -> Iterator[pl.DataFrame]:
    """Yield the rows of one published table that some stages hold now."""
    for stage in stages:
        manifest = current_manifest(folder, stage)
        for entry in file.entries if manifest is not None else ():
            if manifest is not None and entry in manifest.entries:
                table = read_entry_table(folder, manifest, entry)
                yield with_origin(published(table) if file.row is ClaimScore else table, file, origin)


def published(scores: pa.Table) -> pa.Table:
    """Return take scores, a row per metric (`TakeScore`), with a column per metric (`ClaimScore`) instead."""
    frame = cast(pl.DataFrame, pl.from_arrow(scores)).filter(pl.col("metric").is_in(list(COLUMNS)))
    keys = ["variant", "seed", "take_id", "horizon", "n_windows"]
    wide = frame.pivot("metric", index=keys, values="total", maintain_order=True).rename(dict(COLUMNS))
    return wide.select([*keys, *METRICS]).to_arrow()


LATER: Mapping[str, tuple[str, ...]] = {}
"""Group of settings -> settings that came after the run was fixed and change nothing that was there: its digest leaves
them out. Whoever fixes worlds and recipe anew empties this."""


RULES: tuple[Record, ...] = (LIMITS, LeakConfig(), StudyConfig(), LatentMapConfig())
"""What else is fixed: what withholds a verdict, bounds of the leak checks, the study of the scorer, the map of worlds
by latents."""


def digest_of(cfg: ClaimsConfig, recipe: PipelineConfig) -> str:
    """Return one digest over the sizes, the worlds, what is computed in them, and the rules."""
    settings = {
        group: {name: one for name, one in value.items() if name not in LATER.get(group, ())}
        if isinstance(value, dict)
        else value
        for group, value in recipe.content().items()
    }
    worlds = [world.world.content() for world in planned(cfg)]
    return fingerprint([cfg.content(), settings, *worlds, *(rules.content() for rules in RULES)])


def require_fixed(cfg: ClaimsConfig, recipe: PipelineConfig) -> None:
    """Refuse to compute worlds of the claims as long as nothing is fixed, and with anything but what was fixed.

    Raises:
        InputError: with the digest of these settings, and what to do.
    """
    here = digest_of(cfg, recipe)
    if fixed.RUN_DIGEST is None:
        raise InputError(
            "the settings of the claims are not fixed yet: RUN_DIGEST in schemas/claims.py is None. Finish the search "
            "for recipes, set FIXED_ON to that day and RUN_DIGEST to the digest that this command prints then (now "
            f"{here}), commit, and only then compute: no figure of these worlds may be read before"
        )
    if here != fixed.RUN_DIGEST:
        raise InputError(
            f"sizes, worlds or the recipe are not those that were fixed on {cfg.fixed_on} (digest {here[:12]}, fixed "
            f"{fixed.RUN_DIGEST[:12]}); take the change back (schemas/, deployments/recipes/), or fix them anew: "
            "another date, and seeds that nobody has looked at"
        )
