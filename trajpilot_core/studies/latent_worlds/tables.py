"""The committed tables of docs/latent: gathered from the worlds of the study, written, and read again.

Files of the claims that this study has (`studies/claims/evidence/tables.py`), and others of its own. What a world that
is not done lacks is absent: it is never filled in.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import polars as pl

from schemas.base import Record, fingerprint
from schemas.claims import ClaimScore, ClaimsJob
from schemas.config import PipelineConfig
from schemas.latent import ConditionScore, EnergyCorrelation, EnergySpread
from schemas.latent_worlds import RUN_DIGEST, ConditionTake, EnergyTake, LatentWorldsConfig
from schemas.results import Ceiling, CurvePoint, Judgement, Metric, PairDistance
from trajpilot_core.errors import InputError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.parquet import read_table
from trajpilot_core.studies.claims.evidence.tables import (
    RUN_FILE,
    Evidence,
    File,
    Origin,
    read_evidence,
    write_frames,
)
from trajpilot_core.studies.claims.worlds.collect import frames_of_file, fresh_stages, record_of, run_of
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, options_of
from trajpilot_core.studies.latent_worlds.stages import stages_of
from trajpilot_core.studies.latent_worlds.worlds import PlannedLatentWorlds, config_of

R = TypeVar("R", bound=Record)
FOLDER = "latent"
METRICS_FILE = File("metrics", Metric, True, ("metrics",))
CONDITIONS_FILE = File("conditions", ConditionScore, True, ("latent_conditions",))
CORRELATIONS_FILE = File("correlations", EnergyCorrelation, True, ("energy_correlations",))
SPREADS_FILE = File("spreads", EnergySpread, True, ("energy_spreads",))
DISTANCES_FILE = File("distances", PairDistance, True, ("pair_distances",))
CONDITION_TAKES_FILE = File("condition_takes", ConditionTake, True, ("condition_takes",))
ENERGY_TAKES_FILE = File("energy_takes", EnergyTake, True, ("energy_takes",))
FILES: tuple[File, ...] = (
    File("scores", ClaimScore, False, ("take_scores",)),
    File("curves", CurvePoint, True, ("latent_curves",)),
    File("judgements", Judgement, True, ("latent_checks",)),
    File("ceilings", Ceiling, True, ("ceilings",)),
    METRICS_FILE,
    CONDITIONS_FILE,
    CORRELATIONS_FILE,
    SPREADS_FILE,
    DISTANCES_FILE,
    CONDITION_TAKES_FILE,
    ENERGY_TAKES_FILE,
)


class LatentTables(NamedTuple):
    """What the study has to show; each row with the world and seed that it comes from."""

    evidence: Evidence
    """As the pages and verdicts of the claims read theirs."""
    metrics: tuple[tuple[Origin, Metric], ...]
    conditions: tuple[tuple[Origin, ConditionScore], ...]
    correlations: tuple[tuple[Origin, EnergyCorrelation], ...]
    spreads: tuple[tuple[Origin, EnergySpread], ...]
    distances: tuple[tuple[Origin, PairDistance], ...]
    condition_takes: tuple[tuple[Origin, ConditionTake], ...]
    energy_takes: tuple[tuple[Origin, EnergyTake], ...]


def publish_part(
    part: PlannedLatentWorlds, cfg: LatentWorldsConfig, recipe: PipelineConfig, runs: WorldsRoot, folder: Path
) -> Path:
    """Write the tables of a part from those of its worlds that are done.

    Args:
        part: which worlds.
        cfg: sizes and margins; they enter the digest of the run.
        recipe: what was computed in them.
        runs: where they lie.
        folder: docs/latent.

    Raises:
        InputError: no world is done; nothing is written.
    """
    done = [world for world in part.worlds if is_done(world, recipe, runs)]
    if not done:
        raise InputError(f"no world of the part {part.part} is done below {runs.root}; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        write_frames(folder, file, [frame for world in done for frame in frames_of(world, file, runs)])
    jobs = [job for world in done for job in jobs_of(world, runs)]
    run = run_of(done, jobs, digest_of(part, cfg, recipe), runs, None)
    (folder / RUN_FILE).write_text(run.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return folder


def digest_of(part: PlannedLatentWorlds, cfg: LatentWorldsConfig, recipe: PipelineConfig) -> str:
    """Return one digest over the worlds of a part, what is fixed, and what is computed in them."""
    return fingerprint([cfg.content(), recipe.content(), *(world.world.content() for world in part.worlds)])


def require_fixed(part: PlannedLatentWorlds, cfg: LatentWorldsConfig, recipe: PipelineConfig) -> None:
    """Refuse to compute final worlds with anything but what was fixed.

    Raises:
        InputError: with the digest of these settings, and what to do.
    """
    here = digest_of(part, cfg, recipe)
    if part.part == "final" and here != RUN_DIGEST:
        raise InputError(
            f"sizes, margins, worlds or the recipe are not those that were fixed on {cfg.fixed_on} (digest "
            f"{here[:12]}, fixed {RUN_DIGEST[:12]}); take the change back, or fix them anew in "
            "schemas/latent_worlds.py: another date, and a seed that nobody has looked at"
        )


def is_done(world: PlannedWorld, recipe: PipelineConfig, runs: WorldsRoot) -> bool:
    """Return whether every stage of a world is up to date with this recipe."""
    config, options = config_of(world, recipe), options_of(world, Path(runs.root), runs.device)
    stages = stages_of()
    return fresh_stages(stages, config, options) == frozenset(stages)


def frames_of(world: PlannedWorld, file: File, runs: WorldsRoot) -> Iterator[pl.DataFrame]:
    """Yield the rows of one file that the stages of a finished world have written."""
    options, origin = options_of(world, Path(runs.root), runs.device), Origin(world.name, world.seed)
    folder = open_folder(options.root, options.protocols)
    yield from frames_of_file(folder, stages_of(), file, origin)


def jobs_of(world: PlannedWorld, runs: WorldsRoot) -> list[ClaimsJob]:
    """Return the finished jobs of a world with their times."""
    options = options_of(world, Path(runs.root), runs.device)
    folder = open_folder(options.root, options.protocols)
    jobs = []
    for name in stages_of():
        record = record_of(folder, name)
        seconds = None if record is None or record.reused else round(record.seconds, 1)
        jobs.append(world.job(name, "done", seconds).replace(started="" if record is None else record.started))
    return jobs


def read_tables(folder: Path, horizons: tuple[int, ...]) -> LatentTables:
    """Read what the study has written; what is absent is absent.

    Args:
        folder: docs/latent.
        horizons: H, in the order of the axis of every figure.

    Raises:
        InputError: a table contradicts itself.
        StoreError: a damaged table.
    """
    return LatentTables(
        read_evidence(folder, horizons),
        rows_in(folder, METRICS_FILE, Metric),
        rows_in(folder, CONDITIONS_FILE, ConditionScore),
        rows_in(folder, CORRELATIONS_FILE, EnergyCorrelation),
        rows_in(folder, SPREADS_FILE, EnergySpread),
        rows_in(folder, DISTANCES_FILE, PairDistance),
        rows_in(folder, CONDITION_TAKES_FILE, ConditionTake),
        rows_in(folder, ENERGY_TAKES_FILE, EnergyTake),
    )


def rows_in(folder: Path, file: File, row: type[R]) -> tuple[tuple[Origin, R], ...]:
    """Return the rows of one file with their origins, none where it is absent."""
    path = folder / f"{file.name}.parquet"
    held = read_table(path).to_pylist() if path.is_file() else []
    return tuple((Origin(str(one.pop("world")), int(one.pop("world_seed"))), row.model_validate(one)) for one in held)
