"""Evaluation: predictions of every row, metrics with intervals over takes, the gate, and self-checks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from schemas.arrow import rows_of, table_of
from schemas.config import CompletedEvaluation, EvaluationConfig, PipelineConfig
from schemas.results import (
    Ceiling,
    CurvePoint,
    DecodingChoice,
    GateRow,
    Headroom,
    Judgement,
    Metric,
    SamplingScore,
    ScorerChoice,
    ShuffleScore,
)
from trajpilot_core.data.cross_fitting import SCORER_NO_GOAL, folds_of, noted_fitted, seeds_of
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import Output, Source, Stage, Work
from trajpilot_core.stages import vlm
from trajpilot_core.stages.trained import PLANNING
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.evaluation.ceiling import ExactCeilings
    from trajpilot_core.evaluation.prediction_arrays import Predictions

LABELS, MODELS = ("labels", "scenario_labels", "label_classes"), ("e_tau", "predictors", "scorers")
CURVES = ("alignment_curves", "predictor_curves", "scorer_curves")
READS = (*PLANNING, *LABELS, *MODELS, *CURVES, "scorer_choices")
SCORED = ("metrics", "ceilings", "judgements", "headroom", "shuffles", "samplings", "decoding")
"""Tables that the report shows, with the gate and the outcomes."""
FURTHER: Mapping[str, tuple[str, ...]] = {
    "planners": ("planner_models", "planners_curves", "descriptions"),
    "latent": ("latent_models",),
    "latent_plans": ("latent_predictions", "latent_checks"),
    "vlm_rows": vlm.ROWS.writes[:1],
}
"""Optional stage of planning -> additional reads of a run that has it."""
FITTED = ("e_tau", "predictors")
"""Entries of models that note the takes they were fitted on."""
VERSION = 14  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> CompletedEvaluation:
    """Return the settings of the evaluation, completed from those of other stages."""
    asked, anticipates = config.vlm, config.predictor.anticipates
    subset = {"windows_per_horizon": asked.windows_per_horizon, "subset_seed": asked.seed} if asked.rows else {}
    return CompletedEvaluation.completing(
        config.evaluation, anticipates=anticipates, further_entries=further_entries(config), **subset
    )


def further(config: PipelineConfig) -> tuple[str, ...]:
    """Return the names of the optional stages of planning that the settings enable."""
    planners = ("planners",) if config.planners.methods else ()
    latents = ("latent", "latent_plans") if config.latent.is_asked else ()
    return (*planners, *latents, *(("vlm", "vlm_rows") if config.vlm.rows else ()))


def further_entries(config: PipelineConfig) -> tuple[str, ...]:
    """Return the entries of optional stages that are read in addition."""
    return tuple(entry for name in further(config) for entry in FURTHER.get(name, ()))


def narrowed(config: PipelineConfig) -> tuple[str, ...] | None:
    """Return the reads where optional stages train or answer rows; None: the default."""
    more = further_entries(config)
    return (*READS, *more) if more else None


def run(work: Work[CompletedEvaluation]) -> None:
    """Score every row on the test windows, including those of plugins."""
    from trajpilot_core.methods.plugged import listed

    with listed(work.config):
        evaluate(work)


def evaluate(work: Work[CompletedEvaluation]) -> None:
    """Score the listed rows; see `trajpilot_core.evaluation` for the parts."""
    from trajpilot_core.data.chains import predictor_config
    from trajpilot_core.evaluation.ceiling import ExactCeilings, ceiling_checks, compare, row_scores
    from trajpilot_core.evaluation.checks import CheckInputs, judge
    from trajpilot_core.evaluation.prediction_arrays import PredictionCollector
    from trajpilot_core.evaluation.predictions import SCHEMA, predict_all
    from trajpilot_core.evaluation.tables import gate_rows, metric_rows, outcome_table
    from trajpilot_core.evaluation.trained_rows import JUDGED, JUDGED_BY_HEADS, TRAINED, judge_rows

    cfg = work.config
    steps = CountedSteps(work.runtime.progress, after=2)
    rows = predict_all(work.inputs, cfg, work.runtime.device, steps, work.runtime.workers)
    collected = PredictionCollector()
    work.sink.table_in_parts("predictions", collected.passing(rows.predictions), SCHEMA)
    work.sink.table("headroom", table_of(Headroom, rows.figures.headroom))
    work.sink.table("shuffles", table_of(ShuffleScore, rows.figures.shuffles))
    work.sink.table("samplings", table_of(SamplingScore, rows.figures.samplings))
    work.sink.table("decoding", table_of(DecodingChoice, rows.figures.decoding))
    work.sink.reject(rows.rejects)
    work.sink.count(rows.n_in, rows.n_out)
    predictions = collected.predictions()
    takes = work.inputs.table("takes", ["take_id", "corpus", "split"]).to_pylist()
    steps.begin("metrics and their intervals")
    scored = set(predictions.take_ids)
    corpus = ", ".join(sorted({row["corpus"] for row in takes if row["take_id"] in scored}))
    metrics = metric_rows(predictions, corpus, cfg)
    plans_in_latents = "latent_checks" in cfg.further_entries
    in_latents = rows_of(Judgement, work.inputs.table("latent_checks")) if plans_in_latents else []
    has_heads = predictor_config(work.inputs.models("predictors")).head == "classes"
    optional = [name for name in ("planner_models", "latent_models") if name in cfg.further_entries]
    fitted = {name: work.inputs.models(name) for name in (*FITTED, *optional)}
    fitted = {name: models for name, models in fitted.items() if name in FITTED or models.keys}
    learned = trained(work.inputs, cfg) + [row for row in in_latents if row.check.startswith(TRAINED)]
    take_of = vlm.column_by(work.inputs, "windows", "window_id", "take_id")
    evidence = CheckInputs(
        predictions,
        metrics,
        {row["take_id"]: row["split"] for row in takes},
        {window: take_of[window] for window in collected.candidates()},
        folds_of(work.inputs),
        learned + judge_rows(metrics, JUDGED_BY_HEADS if has_heads else JUDGED),
        {name: noted_fitted(models.about) or None for name, models in fitted.items()},
    )
    steps.begin("checks and ceilings")
    known = what_is_known(work, predictions)
    ceilings = compare(predictions, known) if isinstance(known, ExactCeilings) else []
    work.sink.table("take_scores", row_scores(predictions))
    work.sink.table("ceilings", table_of(Ceiling, ceilings))
    work.sink.table("metrics", table_of(Metric, metrics))
    judged = judge(evidence) + ceiling_checks(ceilings, known)
    judged += [row for row in in_latents if not row.check.startswith(TRAINED)]
    work.sink.table("judgements", table_of(Judgement, judged))
    work.sink.table("gate", table_of(GateRow, gate_rows(predictions)))
    work.sink.table("outcomes", outcome_table(predictions))


def what_is_known(work: Work[CompletedEvaluation], predictions: "Predictions") -> "ExactCeilings | str | None":
    """Return the exact ceilings of the predicted windows; None for a recorded corpus.

    For a simulated corpus without an exact ceiling, return the reason.
    """
    from trajpilot_core.evaluation.ceiling import known_of_predictions, read_world
    from trajpilot_core.simworld.inference.visible import unshown

    world = read_world(work.runtime.data_root)
    if world is None:
        return None
    over_classes = work.config.vocabulary == "classes"
    classes = vlm.column_by(work.inputs, "label_classes", "label_id", "class_id") if over_classes else None
    segments, windows = (work.inputs.table(name) for name in ("segments", "windows"))
    reason = unshown(world, segments, has_classes=classes is not None)
    if reason is not None:
        return reason
    return known_of_predictions(world, predictions, segments, windows, classes)


def trained(inputs: Inputs, cfg: CompletedEvaluation) -> list[Judgement]:
    """Judge predictors of every chain, scorers and planners of every seed (D 51).

    Planners are compared with the floors of the chain `final`, scorers with chance; a scorer without decisions on dev
    was never fitted: undertrained.
    """
    from trajpilot_core.evaluation.trained_rows import judge_planner, judge_scorer, judge_trained

    curve = rows_of(CurvePoint, inputs.table("predictor_curves"))
    models = sorted({(row.model, row.seed) for row in curve if row.epoch > 0})
    scored = rows_of(CurvePoint, inputs.table("scorer_curves"))
    choices = rows_of(ScorerChoice, inputs.table("scorer_choices"))
    ranking = {("final/scorer", seed) for _, seed in models}
    blind = [key for key in inputs.models("scorers").keys if key.endswith(f"/{SCORER_NO_GOAL}")]
    ranking |= {(f"final/{SCORER_NO_GOAL}", seed) for seed in seeds_of(blind)}
    ranking |= {(row.model, row.seed) for row in choices}
    judged = [(model, seed, judge_trained(curve, model, seed)) for model, seed in models]
    for model, seed in sorted(ranking):
        of_model = [row for row in scored if (row.model, row.seed) == (model, seed)]
        decided = [row for row in choices if (row.model, row.seed) == (model, seed)]
        judged.append((model, seed, judge_scorer(model, decided, of_model, cfg)))
    planning = rows_of(CurvePoint, inputs.table("planners_curves")) if "planners_curves" in cfg.further_entries else []
    planners = sorted({(row.model.removeprefix("final/").rpartition("_h")[0], row.seed) for row in planning})
    judged += [(f"final/{name}", seed, judge_planner(curve + planning, name, seed)) for name, seed in planners]
    return [judgement.replace(check=f"trained: {model}, seed {seed}") for model, seed, judgement in judged]


STAGE = Stage(
    name="evaluation",
    reads=READS,
    writes=("predictions", *SCORED, "gate", "outcomes", "take_scores"),
    config=EvaluationConfig,
    run=run,
    completed=completed,
    narrowed=narrowed,
    sources=lambda inputs, cfg, data_root: [Source("", ("world.json",))],  # its absence in recorded corpora counts, too
    version=VERSION,
    summary="Predicts every row on the test windows, scores it with intervals over takes, and checks the result",
    uses_gpu=True,
    lowers=("scorer.candidates",),
    output=Output(
        "test windows",
        "metrics",
        ("pooling", "n_windows"),
        lambda table: pc.max(table.filter(pc.equal(table["pooling"], "sample"))["n_windows"]).as_py() or 0,
    ),
)
