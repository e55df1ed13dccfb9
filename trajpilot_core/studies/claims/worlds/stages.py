"""What only the claims compute in a simulated world, as stages, and which stages a world goes through."""

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.arrow import table_of
from schemas.checks import GeometryConfig, LeakConfig, StudyConfig
from schemas.claims import ClaimsConfig
from schemas.config import EvaluationConfig
from schemas.results import GeometryScore, GoalProgress, LeakCheck, ScorerStudy
from schemas.training import ScorerConfig
from trajpilot_core.engine.stage import AnyStage, Inputs, Source, Stage, Work
from trajpilot_core.errors import WorldError
from trajpilot_core.stages import FEATURE_SPACE_STAGES, REPORTED, evaluation, feature_space, scorer
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, WorldKind, dated_world

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

    world = world_at(work.runtime.data_root)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    provenance = Provenance(world.config, dated_world(world.config), ClaimsConfig().fixed_on, today)
    checks = leak_checks(work.inputs, world, provenance, LeakConfig())
    work.sink.table("leaks", table_of(LeakCheck, checks))
    work.runtime.progress(1, 2, f"{len(checks)} leak checks")
    measure_geometry(work)


def measure_geometry(work: Work[EvaluationConfig]) -> None:
    """Measure the distances between features by recording and by action."""
    from trajpilot_core.studies.claims.worlds.geometry import scene_geometry

    deliver(work, "geometry", table_of(GeometryScore, scene_geometry(work.inputs, GeometryConfig())))


def measure_progress(work: Work[EvaluationConfig]) -> None:
    """Count the true plans that come closer to the goal with every step."""
    from trajpilot_core.studies.claims.worlds.geometry import goal_progress

    deliver(work, "goal_progress", table_of(GoalProgress, goal_progress(work.inputs)))


def deliver(work: Work[EvaluationConfig] | Work[ScorerConfig], name: str, table: pa.Table) -> None:
    """Hand over the one table of a stage that makes its rows from many."""
    work.sink.table(name, table)
    work.sink.count(table.num_rows, table.num_rows)


def score_sweep(work: Work[EvaluationConfig]) -> None:
    """Predict the rows that need no scorer on the test windows, and hold them against their ceilings."""
    from trajpilot_core.evaluation.ceiling import compare, known_of_predictions, row_scores, score_tables
    from trajpilot_core.evaluation.prediction_arrays import predictions_of
    from trajpilot_core.studies.claims.worlds.sweep import predict_sweep

    table = predict_sweep(work.inputs, work.runtime.device, work.runtime.progress)
    predictions, world = predictions_of(table), world_at(work.runtime.data_root)
    known = known_of_predictions(world, predictions, work.inputs.table("segments"), work.inputs.table("windows"))
    for name, scores in score_tables(row_scores(predictions), known, compare(predictions, known)).items():
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
    deliver(work, "study", table_of(ScorerStudy, rows))


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
NEEDS_RETRIEVAL = ("scorer", "evaluation")
STAGES_OF: Mapping[WorldKind, tuple[AnyStage, ...]] = {
    "base": (*REPORTED, CHECKS, PROGRESS, STUDY),
    "control": (*FEATURE_SPACE_STAGES.values(), CHECKS),
    "sweep": (*(stage for stage in FEATURE_SPACE_STAGES.values() if stage.name not in NEEDS_RETRIEVAL), SWEEP),
    "scene": (feature_space.TABLES, feature_space.FEATURES, GEOMETRY),
}


def stages_of(world: PlannedWorld) -> dict[str, AnyStage]:
    """Return the stages that a world goes through, in order."""
    return {stage.name: stage for stage in STAGES_OF[world.kind]}
