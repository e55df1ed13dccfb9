"""Outcome (made or missed), predicted from what precedes a shot: trains every row, scores it, and writes its pages."""

from typing import TYPE_CHECKING

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.events import CompletedOutcome, OutcomeConfig, ShotAnswer, ShotContrast, ShotScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import FINAL, chains_in, folds_of, model_key, seeds_of, twin_of, variants_of
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import Output, Work
from trajpilot_core.stages.pretrained import origin_of_models, predictor_facts
from trajpilot_core.stages.trained import PLANNING, Facts, Fits, TrainedStage, Trainings, named
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.data.events import Shots

ENTRY = "outcome_models"
"""Predictors of every chain; probe and scorer of the final one."""
PROBE = "probe"
"""As in training/fit_event.py, which imports torch."""
READS = (*PLANNING, "details", "e_tau")
TABLES = ("outcome_scorer_curves", "shot_answers", "shot_scores", "shot_contrasts", "outcome_judgements")
PAGES = ("outcome.html", "outcome.json", "outcome.tex")
VERSION = 8  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> CompletedOutcome:
    """Return the settings of the stage with those of predictor, scorer and evaluation that it uses."""
    scorer = config.scorer.replace(ablations=())
    measured = {name: getattr(config.evaluation, name) for name in ("bootstrap", "confidence", "seed")}
    return CompletedOutcome.completing(config.outcome, predictor=config.predictor, scorer=scorer, **measured)


def trainings(inputs: Inputs, cfg: CompletedOutcome) -> Trainings:
    """Return the predictors of every chain and seed; features with tokens add a probe to the final chain."""
    tokens = int((inputs.table("features", ["segment_id"]).schema.metadata or {}).get(b"tokens", b"1"))
    every, seeds = chains_in(folds_of(inputs)), seeds_of(inputs.parts("e_tau"))
    probes = [(chain, seed, PROBE) for chain in every[:1] for seed in seeds if tokens > 1]
    return named([*((chain, seed, v) for chain in every for seed in seeds for v in variants_of(chain)), *probes])


def facts(inputs: Inputs, cfg: CompletedOutcome, known: Trainings) -> dict[str, Facts]:
    """Return what decides each training: all shots, the E_tau of its chain and seed, and the initial weights."""
    first = {name: twin_of(name) for name, (*_, variant) in known.items() if variant != PROBE}
    return predictor_facts(inputs, cfg.predictor, known, READS, first)


def fits(work: Work[CompletedOutcome], wanted: Trainings) -> Fits:
    """Prepare the predictors and probes of chains and seeds."""
    from trajpilot_core.data.events import load_shots
    from trajpilot_core.stages.event_run import SHOTS, EventRun, event_fits
    from trajpilot_core.training.fit_event import SHOT_FIT

    return event_fits(EventRun(work, load_shots(work.inputs)[0], SHOTS), wanted, SHOT_FIT)


def conclude(work: Work[CompletedOutcome]) -> None:
    """Fit the scorers, answer the test shots, score the answers; write tables and pages."""
    from trajpilot_core.data.events import load_shots
    from trajpilot_core.evaluation.shot_scores import fitted_judgements, trained_judgements
    from trajpilot_core.stages.event_run import SHOTS, EventRun, answer_seed
    from trajpilot_core.training.loop import one_thread

    shots, rejects = load_shots(work.inputs)
    this, seeds = EventRun(work, shots, SHOTS), seeds_of(work.inputs.models("e_tau").keys)
    steps = CountedSteps(work.runtime.progress, after=len(seeds) + 1)
    curves = [row for written in work.trained.values() for row in rows_of(CurvePoint, written.table("outcome_curves"))]
    judged = fitted_judgements([written.models(ENTRY).about for written in work.trained.values()], shots)
    answers, of_scorers, about = list[ShotAnswer](), list[CurvePoint](), {"config": work.config.model_dump_json()}
    with one_thread(work.runtime.device):
        for seed in seeds:
            steps.begin(f"scorer and answers of seed {seed}")
            models, curve, answered, sight = answer_seed(this, seed)
            answers, of_scorers, judged = answers + answered, of_scorers + curve, [*judged, sight]
            key = model_key(FINAL, seed, "scorer")
            work.sink.model(ENTRY, key, {name: v.cpu().numpy() for name, v in models.scorer.state_dict().items()})
            about[key] = models.decision.model_dump_json()
    work.sink.models(ENTRY, about)
    work.sink.table("outcome_scorer_curves", table_of(CurvePoint, of_scorers))
    work.sink.reject(rejects)
    work.sink.count(len(shots) + sum(row.n_units for row in rejects), len(shots))
    steps.begin("metrics, intervals and pages")
    curves += of_scorers
    write_results(work, answers, curves, judged + trained_judgements(curves, shots), shots)


def write_results(
    work: Work[CompletedOutcome],
    answers: list[ShotAnswer],
    curves: list[CurvePoint],
    judged: list[Judgement],
    shots: "Shots",
) -> None:
    """Score the answers, and write tables and pages."""
    from trajpilot_core.evaluation.shot_scores import contrasts_of, row_judgements, scores_of
    from trajpilot_core.report.outcome_page import documents

    takes = work.inputs.table("takes", ["take_id", "corpus", "capture", "split"]).to_pylist()
    scores, contrasts = scores_of(answers, work.config), contrasts_of(answers, work.config)
    judged = judged + row_judgements(scores)
    work.sink.table("shot_answers", table_of(ShotAnswer, answers))
    work.sink.table("shot_scores", table_of(ShotScore, scores))
    work.sink.table("shot_contrasts", table_of(ShotContrast, contrasts))
    work.sink.table("outcome_judgements", table_of(Judgement, judged))
    kinds = {split: [row["capture"] for row in takes if row["split"] == split] for split in ("train", "dev", "test")}
    shared = len({*kinds["test"]} & {*kinds["train"], *kinds["dev"]})
    counts = ", ".join(f"{int((shots.split == at).sum())} {name}" for at, name in enumerate(("train", "dev", "test")))
    facts = [
        f"shots: {counts}; takes: {', '.join(f'{len(captures)} {name}' for name, captures in kinds.items())}",
        f"{shared or 'no'} captures have both test takes and other takes"
        + (", so a model may have seen their wearer and room" if shared else ""),
        origin_of_models(work.inputs.models("e_tau").about, work.config.predictor, "the captions of this corpus"),
    ]
    is_simulated = SIMULATED in {row["corpus"] for row in takes}
    pages = documents(scores, contrasts, judged, curves, facts, work.config, is_simulated=is_simulated)
    for name, content in pages.items():
        work.sink.document(name, content)


STAGE = TrainedStage(ENTRY, "outcome_curves", trainings, facts, fits, conclude, (*TABLES, *PAGES)).stage(
    name="outcome",
    reads=READS,
    config=OutcomeConfig,
    version=VERSION,
    summary="Predicts whether shots go in: trains the predictors and the scorer, scores every row, writes its pages",
    completed=completed,
    lowers=("outcome.train.batch",),
    outside_shards=("utility", "shuffle_seed", "bootstrap", "confidence", "seed", "scorer"),
    output=Output("test shots", "shot_answers", ("shot_id",), lambda table: len(set(table["shot_id"].to_pylist()))),
)
