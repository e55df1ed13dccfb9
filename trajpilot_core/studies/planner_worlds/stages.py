"""Planners of other papers in a world by latents, as stages of their own: what planning and claims have is left alone.

A world of the claims is computed in one chain, with the predictors that rows without a scorer rest on: no row here
retrieves, so that the folds' models, two thirds of the work, would be trained for nothing.
"""

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.arrow import rows_of, table_of
from schemas.config import EvaluationConfig
from schemas.planners import PlannersConfig
from schemas.results import CurvePoint, Judgement, Metric
from trajpilot_core.engine.stage import AnyStage, Inputs, Source, Stage, Work
from trajpilot_core.stages import planners
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld
from trajpilot_core.studies.claims.worlds.stages import CURVE_PREDICTOR, FITTED, world_at, world_sources

if TYPE_CHECKING:
    import pyarrow as pa

PLANNERS_STAGE, ROWS_STAGE = "paper_planners", "paper_rows"
VERSION = 1  # raise when the numbers that the stage of the rows writes change


def planners_stage(asked: Collection[str]) -> Stage[PlannersConfig]:
    """Return the stage that trains some planners.

    Args:
        asked: `<method>_h<horizon>`; those that are not named are not trained, whatever windows there are.
    """

    def sources(inputs: Inputs, cfg: PlannersConfig, data_root: str) -> list[Source]:
        found = planners.sources(inputs, cfg, data_root)
        return [source for source in found if source.shard.rpartition("/")[2] in asked]

    return replace(planners.STAGE, name=PLANNERS_STAGE, sources=sources, pure_sources=False)


def score_rows(work: Work[EvaluationConfig]) -> None:
    """Predict the rows on the test windows of the planners' horizons, score them, hold them against their ceilings."""
    from trajpilot_core.evaluation.ceiling import compare, known_of_predictions, row_scores, score_tables
    from trajpilot_core.evaluation.ceiling_check import ceiling_checks
    from trajpilot_core.evaluation.prediction_arrays import predictions_of
    from trajpilot_core.stages.evaluation import score
    from trajpilot_core.studies.planner_worlds.rows import predict_rows

    table = predict_rows(work.inputs, work.config, work.runtime.device, work.runtime.progress)
    predictions, world = predictions_of(table), world_at(work.runtime.data_root)
    takes = work.inputs.table("takes", ["take_id", "corpus", "capture", "split"]).to_pylist()
    known = known_of_predictions(world, predictions, work.inputs.table("segments"), work.inputs.table("windows"))
    ceilings = compare(predictions, known)
    for name, scores in score_tables(row_scores(predictions), known, ceilings).items():
        work.sink.table(name, scores)
    judged = [*judge_trainings(work.inputs), *ceiling_checks(ceilings, known)]
    work.sink.table("judgements", table_of(Judgement, judged))
    work.sink.table("metrics", levels_of(score(predictions, takes, work.config)))
    work.sink.count(table.num_rows, table.num_rows)


def levels_of(metrics: list[Metric]) -> "pa.Table":
    """Return the rows' own figures, with intervals over takes, averaged over seeds: no difference, no pooled window."""
    kept = [m for m in metrics if m.reference is None and m.cluster == "take" and m.seed is None]
    return table_of(Metric, [m for m in kept if m.pooling != "sample"])


def judge_trainings(inputs: Inputs) -> list[Judgement]:
    """Judge the final predictors, every planner as a whole, and every planner at each horizon (D 51)."""
    from trajpilot_core.training.convergence import judge_planner, judge_trained

    curve = [row for row in rows_of(CurvePoint, inputs.table("predictor_curves")) if row.model.startswith("final/")]
    planning = [row for row in rows_of(CurvePoint, inputs.table("planners_curves")) if "," not in row.model]
    own = sorted({(row.model, row.seed) for row in curve if row.epoch > 0})
    judged = [(model, seed, judge_trained(curve, model, seed)) for model, seed in own]
    for model, seed in sorted({(row.model, row.seed) for row in planning}):
        of_model = [row for row in planning if row.model == model]
        method = model.removeprefix("final/").rpartition("_h")[0]
        judged.append((model, seed, judge_planner(curve + of_model, method, seed)))
        if (f"final/{method}", seed) not in [one[:2] for one in judged]:
            judged.append((f"final/{method}", seed, judge_planner(curve + planning, method, seed)))
    return [found.replace(check=f"trained: {model}, seed {seed}") for model, seed, found in judged]


ROWS = Stage(
    name=ROWS_STAGE,
    reads=(
        "takes",
        "segments",
        "scenario_labels",
        "windows",
        "motions",
        "features",
        "text_bank",
        "descriptions",
        "folds",
        "e_tau",
        "predictors",
        "predictor_curves",
        "planner_models",
        "planners_curves",
    ),
    writes=("take_scores", "ceilings", "judgements", "metrics"),
    config=EvaluationConfig,
    run=score_rows,
    version=VERSION,
    summary="score the planners of other papers, and the rows that they are compared with, against their ceilings",
    sources=world_sources,
    uses_gpu=True,
)


def stages_of(world: PlannedWorld, asked: Collection[str]) -> dict[str, AnyStage]:
    """Return the stages that a world goes through, in order.

    Args:
        world: one world.
        asked: the planners that are trained, as in `planners_stage`.
    """
    return {stage.name: stage for stage in (*FITTED, CURVE_PREDICTOR, planners_stage(asked), ROWS)}
