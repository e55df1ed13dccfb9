"""What only the claims compute in a simulated world, as stages, and which stages a world goes through."""

import datetime
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.arrow import table_of
from schemas.checks import LeakConfig, StudyConfig
from schemas.claims import CURVE_ROWS, ClaimsConfig
from schemas.config import EvaluationConfig
from schemas.results import GoalProgress, LeakCheck, ScorerStudy
from schemas.training import PredictorConfig, ScorerConfig
from trajpilot_core.engine.stage import AnyStage, Inputs, Source, Stage, Work
from trajpilot_core.errors import WorldError
from trajpilot_core.methods import method
from trajpilot_core.stages import (
    FEATURE_SPACE_STAGES,
    REPORTED,
    alignment,
    evaluation,
    feature_space,
    predictor,
    scorer,
    text_bank,
)
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, WorldKind, dated_world

if TYPE_CHECKING:
    from trajpilot_core.simworld.world.truth import World

VERSION = 1


def world_sources(inputs: Inputs, config: EvaluationConfig, data_root: str) -> list[Source]:
    """Name the file that describes the world."""
    return [Source("", files=("world.json",))]


def check_sources(inputs: Inputs, config: EvaluationConfig, data_root: str) -> list[Source]:
    """Name the file that describes the world, and state the bounds of the checks."""
    return [Source("", files=("world.json",), facts={"leaks": LeakConfig().digest()})]


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
    """Run the leak checks."""
    from trajpilot_core.studies.claims.leaks.checks import leak_checks
    from trajpilot_core.studies.claims.leaks.context import Provenance

    world = world_at(work.runtime.data_root)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    provenance = Provenance(world.config, dated_world(world.config), ClaimsConfig().fixed_on, today)
    deliver(work, "leaks", table_of(LeakCheck, leak_checks(work.inputs, world, provenance, LeakConfig())))


def measure_progress(work: Work[EvaluationConfig]) -> None:
    """Count the true plans that come closer to the goal with every step."""
    from trajpilot_core.studies.claims.worlds.geometry import goal_progress

    deliver(work, "goal_progress", table_of(GoalProgress, goal_progress(work.inputs)))


def deliver(work: Work[EvaluationConfig] | Work[ScorerConfig], name: str, table: pa.Table) -> None:
    """Hand over the one table of a stage that makes its rows from many."""
    work.sink.table(name, table)
    work.sink.count(table.num_rows, table.num_rows)


def bound_windows(work: Work[EvaluationConfig]) -> None:
    """State what can be known of the test windows; no model has a part in it."""
    from trajpilot_core.evaluation.ceiling import ceilings_of

    tables = {name: work.inputs.table(name) for name in ("segments", "windows")}
    deliver(work, "take_scores", ceilings_of(world_at(work.runtime.data_root), tables, "test"))


def curve_sources(inputs: Inputs, config: PredictorConfig, data_root: str) -> list[Source]:
    """Return the trainings of the predictors that the rows of the learning curve rest on."""
    models = {model for row in CURVE_ROWS for model in method(row).models}
    assert predictor.STAGE.sources is not None
    return [s for s in predictor.STAGE.sources(inputs, config, data_root) if s.shard.rpartition("/")[2] in models]


def score_curve(work: Work[EvaluationConfig]) -> None:
    """Predict the rows of the learning curve on the test windows, and hold them against their ceilings."""
    from trajpilot_core.evaluation.ceiling import compare, known_of_predictions, row_scores, score_tables
    from trajpilot_core.evaluation.prediction_arrays import predictions_of
    from trajpilot_core.studies.claims.worlds.curve import predict_curve

    table = predict_curve(work.inputs, work.runtime.device, work.runtime.progress)
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


CHECKS = Stage(
    name="leak_checks",
    reads=(*evaluation.STAGE.reads, "predictions"),
    writes=("leaks",),
    config=EvaluationConfig,
    run=check_world,
    version=VERSION,
    summary="check that the simulated world gives no answer away",
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
BOUNDS = Stage(
    name="exact_ceilings",
    reads=("segments", "windows"),
    writes=("take_scores",),
    config=EvaluationConfig,
    run=bound_windows,
    version=VERSION,
    summary="state what can be known of the test windows of a simulated world, by exact inference",
    sources=world_sources,
)
CURVE_PREDICTOR = replace(predictor.STAGE, sources=curve_sources)
CURVE = Stage(
    name="curve",
    reads=("takes", "segments", "windows", "motions", "features", "text_bank", "folds", "e_tau", "predictors"),
    writes=("take_scores", "ceilings"),
    config=EvaluationConfig,
    run=score_curve,
    version=VERSION,
    summary="score the rows of the learning curve against their ceilings",
    sources=world_sources,
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
FITTED = (feature_space.TABLES, feature_space.FEATURES, text_bank.STAGE, alignment.STAGE)
STAGES_OF: Mapping[WorldKind, tuple[AnyStage, ...]] = {
    "main": (*FEATURE_SPACE_STAGES.values(), CHECKS, PROGRESS, STUDY),
    "entry": (*FEATURE_SPACE_STAGES.values(), CHECKS),
    "sweep": (feature_space.TABLES, BOUNDS),
    "curve": (*FITTED, CURVE_PREDICTOR, CURVE),
}


def stages_of(world: PlannedWorld) -> dict[str, AnyStage]:
    """Return the stages that a world goes through, in order."""
    is_video = not world.world.enters_by_features()
    return {stage.name: stage for stage in ((*REPORTED, CHECKS) if is_video else STAGES_OF[world.kind])}
