"""The committed tables of docs/comparison: gathered from the worlds of a part, written, and read again.

Each part has a folder with the files of the claims that it has (`studies/claims/evidence/tables.py`), and two of its
own: `metrics`, all metrics of the rows, and `costs`, what the planners' trainings took.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from schemas.arrow import table_of
from schemas.base import fingerprint
from schemas.claims import ClaimScore, ClaimsJob
from schemas.comparison import PlannerCost, PlannerWorldsConfig
from schemas.config import PipelineConfig
from schemas.results import Ceiling, CurvePoint, Judgement, Metric
from trajpilot_core.errors import InputError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.parquet import read_table
from trajpilot_core.studies.claims.evidence.tables import (
    RUN_FILE,
    Evidence,
    File,
    Origin,
    read_evidence,
    with_origin,
    write_frames,
)
from trajpilot_core.studies.claims.worlds.collect import frames_of_file, fresh_stages, record_of, run_of
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, options_of
from trajpilot_core.studies.planner_worlds.stages import PLANNERS_STAGE, stages_of
from trajpilot_core.studies.planner_worlds.worlds import PlannedPart, config_of, read_costs

FOLDER = "comparison"
METRICS_FILE = File("metrics", Metric, True, ("metrics",))
COSTS_FILE = File("costs", PlannerCost, False, ())
FILES: tuple[File, ...] = (
    File("scores", ClaimScore, False, ("take_scores",)),
    File("curves", CurvePoint, True, ("predictor_curves", "planners_curves")),
    File("judgements", Judgement, True, ("judgements",)),
    File("ceilings", Ceiling, True, ("ceilings",)),
    METRICS_FILE,
    COSTS_FILE,
)


class PartTables(NamedTuple):
    """What a part has to show."""

    evidence: Evidence
    """As the pages and verdicts of the claims read theirs."""
    metrics: tuple[tuple[Origin, Metric], ...]
    costs: tuple[PlannerCost, ...]


def publish_part(
    part: PlannedPart, cfg: PlannerWorldsConfig, recipe: PipelineConfig, runs: WorldsRoot, folder: Path
) -> Path:
    """Write the tables of a part from those of its worlds that are done.

    Args:
        part: which worlds.
        cfg: horizons, margins and caps; they enter the digest of the run.
        recipe: what was computed in them.
        runs: where they lie.
        folder: docs/comparison.

    Returns:
        The folder of the part.

    Raises:
        InputError: no world is done; nothing is written.
    """
    done = [world for world in part.worlds if is_done(world, part, recipe, runs)]
    if not done:
        raise InputError(f"no world of the part {part.part} is done below {runs.root}; nothing was written")
    out = folder / part.part
    out.mkdir(parents=True, exist_ok=True)
    for file in FILES:
        write_frames(out, file, [f for world in done for f in frames_of(world, file, part, recipe, runs)])
    jobs = [job for world in done for job in jobs_of(world, part, recipe, runs)]
    run = run_of(done, jobs, digest_of(part, cfg, recipe), runs, recipe)
    (out / RUN_FILE).write_text(run.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return out


def digest_of(part: PlannedPart, cfg: PlannerWorldsConfig, recipe: PipelineConfig) -> str:
    """Return one digest over the worlds of a part, what is fixed, and what is computed in them."""
    return fingerprint([cfg.content(), recipe.content(), *(world.world.content() for world in part.worlds)])


def is_done(world: PlannedWorld, part: PlannedPart, recipe: PipelineConfig, runs: WorldsRoot) -> bool:
    """Return whether every stage of a world is up to date with this recipe."""
    config, options = config_of(world, recipe), options_of(world, Path(runs.root), runs.device)
    stages = stages_of(world, part.trainings(config.planners.methods))
    return fresh_stages(stages, config, options) == frozenset(stages)


def frames_of(
    world: PlannedWorld, file: File, part: PlannedPart, recipe: PipelineConfig, runs: WorldsRoot
) -> Iterator[pl.DataFrame]:
    """Yield the rows of one file that the stages of a finished world have written, of the part's horizons."""
    options, origin = options_of(world, Path(runs.root), runs.device), Origin(world.name, world.seed)
    if file is COSTS_FILE:
        rows = costs_of(world, part, recipe, Path(options.root))
        yield with_origin(table_of(PlannerCost, rows), file, origin)
        return
    folder = open_folder(options.root, options.protocols)
    yield from frames_of_file(folder, stages_of(world, ()), file, origin)


def costs_of(world: PlannedWorld, part: PlannedPart, recipe: PipelineConfig, root: Path) -> list[PlannerCost]:
    """Return what the planners of one world took."""
    held = read_costs(root)
    return [
        PlannerCost(
            method=method,
            seed=world.seed,
            horizon=horizon,
            thread_s=cost.thread_s if (cost := held.get(f"{method}_h{horizon}")) is not None else None,
            is_whole=cost.is_whole if cost is not None else False,
        )
        for method in recipe.planners.methods
        for horizon in part.horizons
    ]


def jobs_of(world: PlannedWorld, part: PlannedPart, recipe: PipelineConfig, runs: WorldsRoot) -> list[ClaimsJob]:
    """Return the finished jobs of a world with their times; the planners' time is the sum of their trainings."""
    options = options_of(world, Path(runs.root), runs.device)
    folder: Folder = open_folder(options.root, options.protocols)
    spent = [cost.thread_s for cost in costs_of(world, part, recipe, Path(options.root))]
    jobs = []
    for name in stages_of(world, ()):
        record = record_of(folder, name)
        seconds = None if record is None or record.reused else round(record.seconds, 1)
        if name == PLANNERS_STAGE:
            seconds = None if None in spent else round(sum(s for s in spent if s is not None), 1)
        jobs.append(world.job(name, "done", seconds).replace(started="" if record is None else record.started))
    return jobs


def read_part(folder: Path, horizons: tuple[int, ...]) -> PartTables:
    """Read what a part has written; what is absent is absent.

    Args:
        folder: of the part.
        horizons: H, in the order of the axis of every figure.

    Raises:
        InputError: a table contradicts itself.
        StoreError: a damaged table.
    """
    evidence = read_evidence(folder, horizons)
    metrics = tuple(
        (Origin(str(row.pop("world")), int(row.pop("world_seed"))), Metric.model_validate(row))
        for row in rows_in(folder, METRICS_FILE)
    )
    costs = tuple(
        PlannerCost.model_validate({k: v for k, v in row.items() if k != "world"})
        for row in rows_in(folder, COSTS_FILE)
    )
    return PartTables(evidence, metrics, costs)


def rows_in(folder: Path, file: File) -> list[dict[str, Any]]:
    """Return the rows of one file, none where it is absent."""
    path = folder / f"{file.name}.parquet"
    return read_table(path).to_pylist() if path.is_file() else []
