"""What only the claims compute in a simulated world: leak checks, scene geometry, and the rows of the sweep."""

import datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.arrow import table_of
from schemas.checks import GeometryConfig, LeakConfig, StudyConfig
from schemas.claims import ClaimsConfig
from schemas.config import EvaluationConfig
from schemas.results import GeometryScore, GoalProgress, LeakCheck, ScorerStudy
from schemas.training import ScorerConfig
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.errors import WorldError
from trajpilot_core.stages import evaluation, scorer

if TYPE_CHECKING:
    from trajpilot_core.simworld.world.truth import World

VERSION = 1


def check_sources(inputs: Inputs, config: EvaluationConfig, data_root: str) -> list[Source]:
    """Name the file that describes the world, and state the bounds of the checks."""
    bounds = {"leaks": LeakConfig().digest(), "geometry": GeometryConfig().digest()}
    return [Source("", files=("world.json",), facts=bounds)]


def world_at(data_root: str) -> "World":
    """Draw the world that lies at a data root.

    Raises:
        WorldError: there is none.
    """
    from trajpilot_core.evaluation.ceiling import read_world

    world = read_world(data_root)
    if world is None:
        raise WorldError(f"there is no world.json under {data_root}; only simulated worlds have these checks")
    return world


def check_world(work: Work[EvaluationConfig]) -> None:
    """Run the leak checks and measure the scene geometry."""
    from trajpilot_core.studies.claims.leaks.checks import leak_checks
    from trajpilot_core.studies.claims.leaks.context import Provenance
    from trajpilot_core.studies.claims.worlds.plan import dated_world

    world = world_at(work.runtime.data_root)
    told = Provenance(
        stored=world.config,
        dated=dated_world(world.config),
        fixed_on=ClaimsConfig().fixed_on,
        computed_on=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )
    checks = leak_checks(work.inputs, world, told, LeakConfig())
    work.sink.table("leaks", table_of(LeakCheck, checks))
    work.runtime.progress(1, 2, f"{len(checks)} leak checks")
    measure_geometry(work)


def measure_geometry(work: Work[EvaluationConfig]) -> None:
    """Measure the distances between features by recording and by action."""
    from trajpilot_core.studies.claims.worlds.geometry import scene_geometry

    rows = scene_geometry(work.inputs, GeometryConfig())
    work.sink.table("geometry", table_of(GeometryScore, rows))
    work.sink.count(len(rows), len(rows))


def measure_progress(work: Work[EvaluationConfig]) -> None:
    """Count the true plans that come closer to the goal with every step."""
    from trajpilot_core.studies.claims.worlds.goal_progress import goal_progress

    rows = goal_progress(work.inputs)
    work.sink.table("goal_progress", table_of(GoalProgress, rows))
    work.sink.count(len(rows), len(rows))


def score_sweep(work: Work[EvaluationConfig]) -> None:
    """Predict the rows that need no scorer on the test windows, and hold them against their ceilings."""
    from trajpilot_core.evaluation.ceiling import compare, known_of_predictions, row_scores, score_tables
    from trajpilot_core.evaluation.prediction_arrays import predictions_of
    from trajpilot_core.studies.claims.worlds.sweep import predict_sweep

    table = predict_sweep(work.inputs, work.runtime.device, work.runtime.progress)
    predictions = predictions_of(table)
    world = world_at(work.runtime.data_root)
    known = known_of_predictions(world, predictions, work.inputs.table("segments"), work.inputs.table("windows"))
    ceilings = compare(predictions, known)
    tables: dict[str, pa.Table] = score_tables(row_scores(predictions), known, ceilings)
    for name, scores in tables.items():
        work.sink.table(name, scores)
    work.sink.count(table.num_rows, table.num_rows)


def study_sources(inputs: Inputs, config: ScorerConfig, data_root: str) -> list[Source]:
    """State the shares of the queries."""
    return [Source("", facts={"study": StudyConfig().digest()})]


def study_scorer(work: Work[ScorerConfig]) -> None:
    """Study the paper's scorer: its ranking, and what more queries change."""
    from trajpilot_core.studies.scorer_study import study

    runtime = work.runtime
    rows = study(work.inputs, work.config, StudyConfig(), runtime.scratch, runtime.device, runtime.progress)
    work.sink.table("study", table_of(ScorerStudy, rows))
    work.sink.count(len(rows), len(rows))


TABLES = ("takes", "segments", "windows", "motions", "features", "text_bank")
CHECKS = Stage(
    name="leak_checks",
    reads=(*evaluation.STAGE.reads, "predictions"),
    writes=("leaks", "geometry"),
    config=EvaluationConfig,
    run=check_world,
    version=VERSION,
    summary="check that the simulated world gives no answer away, and measure the scene geometry",
    sources=check_sources,
)
GEOMETRY = Stage(
    name="scene_geometry",
    reads=("takes", "segments", "features"),
    writes=("geometry",),
    config=EvaluationConfig,
    run=measure_geometry,
    version=VERSION,
    summary="measure distances between features by recording and by action",
    sources=check_sources,
)
PROGRESS = Stage(
    name="goal_progress",
    reads=("takes", "segments", "windows", "features"),
    writes=("goal_progress",),
    config=EvaluationConfig,
    run=measure_progress,
    version=VERSION,
    summary="count the true plans that come closer to the goal with every step",
)
SWEEP = Stage(
    name="sweep",
    reads=(*TABLES, "folds", "e_tau", "predictors"),
    writes=("ceilings", "take_scores"),
    config=EvaluationConfig,
    run=score_sweep,
    version=VERSION,
    summary="score the rows that need no scorer against their ceilings",
    sources=check_sources,
    uses_gpu=True,
)
STUDY = Stage(
    name="scorer_study",
    reads=scorer.STAGE.reads,
    writes=("study",),
    config=ScorerConfig,
    run=study_scorer,
    version=VERSION,
    summary="train the paper's scorer on parts of its queries and report on its gate and its ranking",
    sources=study_sources,
    uses_gpu=True,
)
