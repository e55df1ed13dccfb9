"""Outcome: made or missed, predicted from what precedes a shot; trains every row, scores it, and writes its pages."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.outcome import OutcomeConfig, ShotAnswer, ShotContrast, ShotScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.contributions import chains_in, folds_of, part_of
from trajpilot_core.data.cross_fitting import E_TAU, FINAL, TWIN, Chain, model_key, seeds_of, variants_of
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import Inputs, Output, Source, Stage, Work
from trajpilot_core.stages.predictor import pending_of
from trajpilot_core.stages.pretrained import initial_weights, origin_of_models

if TYPE_CHECKING:
    from trajpilot_core.data.shots import Shots
    from trajpilot_core.training.jobs import TrainingJob

ENTRY = "outcome_models"
"""Of every chain: predictors, and of the final one the probe and the scorer."""
PROBE = "probe"
"""As in training/fit_outcome.py, which imports torch."""
READS = ("takes", "segments", "details", "windows", "motions", "features", "text_bank", "folds", "e_tau")
VERSION = 4  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> OutcomeConfig:
    """Return the settings of the stage with those of predictor, scorer and evaluation that it works with."""
    scorer = config.scorer.replace(ablations=())
    measured = {name: getattr(config.evaluation, name) for name in ("bootstrap", "confidence", "seed")}
    return config.outcome.replace(predictor=config.predictor, scorer=scorer, **measured)


def trainings(known: Iterable[Chain], seeds: Iterable[int], *, has_tokens: bool) -> dict[str, tuple[Chain, int, str]]:
    """Return training -> its chain, seed and variant: predictors, and of the final chain a probe of tokens."""
    chosen = {
        chain: (*variants_of(chain), *((PROBE,) if has_tokens and chain.name == FINAL.name else ())) for chain in known
    }
    return {
        model_key(chain, seed, variant): (chain, seed, variant)
        for chain, variants in chosen.items()
        for seed in seeds
        for variant in variants
    }


def known_trainings(inputs: Inputs) -> dict[str, tuple[Chain, int, str]]:
    """Return the trainings that folds, seeds of E_tau and tokens of the features call for."""
    tokens = int((inputs.table("features", ["segment_id"]).schema.metadata or {}).get(b"tokens", b"1"))
    return trainings(chains_in(folds_of(inputs)), seeds_of(inputs.parts("e_tau")), has_tokens=tokens > 1)


def sources(inputs: Inputs, cfg: OutcomeConfig, data_root: str) -> list[Source]:
    """Return one source per training: all shots, and the E_tau of its chain and seed.

    Raises:
        InputError: weights of another run have seen what is held out here (docs/decisions/pretrained.md).
    """
    facts = {name: part_of(inputs, name) for name in READS if name != "e_tau"}
    known, e_tau = known_trainings(inputs), inputs.parts("e_tau")
    # the Goal of an event is masked, which only goal-dropout twins have learned
    wanted = {f"{model_key(*of)}{TWIN}": of for of in known.values() if of[2] != PROBE}
    begun = initial_weights(inputs, cfg.net, wanted, folds_of(inputs))
    return [
        Source(name, facts={**facts, "e_tau": e_tau[model_key(chain, seed, E_TAU)], **begun.get(f"{name}{TWIN}", {})})
        for name, (chain, seed, _) in known.items()
    ]


def run(work: Work[OutcomeConfig]) -> None:
    """Fit the predictors and probes that are asked for, of chains and seeds."""
    from trajpilot_core.data.shots import load_shots
    from trajpilot_core.stages.outcome_parts import OutcomeRun, chain_jobs
    from trajpilot_core.training.fit_outcome import train_shot_model
    from trajpilot_core.training.jobs import fitted_takes, hand_over, run_jobs

    shots, data, _ = load_shots(work.inputs)
    this, pending = OutcomeRun(work, shots, data), pending_of(work.pending, known_trainings(work.inputs))
    jobs = [job for (chain, seed), own in pending.items() for job in chain_jobs(this, chain, seed, own)]

    def ended(job: "TrainingJob") -> None:
        with work.sink.training(job.key) as share:
            share.table("outcome_curves", table_of(CurvePoint, hand_over(job, ENTRY, share)))
            share.models(ENTRY, fitted_takes(job, shots.take, shots.take_ids))

    run_jobs(jobs, train_shot_model, work.runtime, ended)


def conclude(work: Work[OutcomeConfig]) -> None:
    """Fit the scorers, answer the test shots, score the answers; write tables and pages."""
    from trajpilot_core.data.shots import load_shots
    from trajpilot_core.evaluation.shot_scores import fitted_judgements, trained_judgements
    from trajpilot_core.stages.outcome_parts import OutcomeRun, answers_of, models_of_seed, sight_judgement
    from trajpilot_core.training.loop import one_thread

    shots, data, rejects = load_shots(work.inputs)
    this, seeds = OutcomeRun(work, shots, data), seeds_of(work.inputs.models("e_tau").keys)
    steps = CountedSteps(work.runtime.progress, after=len(seeds) + 1)
    curves = [row for one in work.trained.values() for row in rows_of(CurvePoint, one.table("outcome_curves"))]
    judged = fitted_judgements([one.models(ENTRY).about for one in work.trained.values()], shots)
    answers: list[ShotAnswer] = []
    of_scorers: list[CurvePoint] = []
    said: dict[str, str] = {"config": work.config.model_dump_json()}
    with one_thread(work.runtime.device):
        for seed in seeds:
            steps.begin(f"scorer of seed {seed}, and the answers of all rows")
            models, curve = models_of_seed(this, seed)
            answers += answers_of(models, shots, seed)
            of_scorers += curve
            judged.append(sight_judgement(models, shots, seed))
            key = model_key(FINAL, seed, "scorer")
            work.sink.model(ENTRY, key, {name: v.cpu().numpy() for name, v in models.scorer.state_dict().items()})
            said[key] = models.decision.model_dump_json()
    work.sink.models(ENTRY, said)
    work.sink.table("outcome_scorer_curves", table_of(CurvePoint, of_scorers))
    work.sink.reject(rejects)
    work.sink.count(len(shots) + sum(row.n_units for row in rejects), len(shots))
    steps.begin("metrics, intervals and pages")
    curves += of_scorers
    write_results(work, answers, curves, judged + trained_judgements(curves, shots), shots)


def write_results(
    work: Work[OutcomeConfig],
    answers: list[ShotAnswer],
    curves: list[CurvePoint],
    judged: list[Judgement],
    shots: "Shots",
) -> None:
    """Score the answers, and write tables and pages."""
    from trajpilot_core.evaluation.shot_scores import contrasts_of, row_judgements, scores_of
    from trajpilot_core.report.outcome_page import OutcomeResults, documents

    takes = work.inputs.table("takes", ["take_id", "corpus", "capture", "split"]).to_pylist()
    scores, contrasts = scores_of(answers, work.config), contrasts_of(answers, work.config)
    judged = judged + row_judgements(scores)
    for name, table in (
        ("shot_answers", table_of(ShotAnswer, answers)),
        ("shot_scores", table_of(ShotScore, scores)),
        ("shot_contrasts", table_of(ShotContrast, contrasts)),
        ("outcome_judgements", table_of(Judgement, judged)),
    ):
        work.sink.table(name, table)
    kinds = {split: [row["capture"] for row in takes if row["split"] == split] for split in ("train", "dev", "test")}
    shared = len({*kinds["test"]} & {*kinds["train"], *kinds["dev"]})
    counts = ", ".join(f"{int((shots.split == at).sum())} {name}" for at, name in enumerate(("train", "dev", "test")))
    facts = [
        f"shots: {counts}; takes: {', '.join(f'{len(held)} {name}' for name, held in kinds.items())}",
        f"{shared} captures hold test takes and other takes, whose wearer and room a model may have seen",
        origin_of_models(work.inputs.models("e_tau").about, work.config.net, "the captions of this corpus"),
    ]
    is_simulated = SIMULATED in {row["corpus"] for row in takes}
    results = OutcomeResults(scores, contrasts, judged, curves, facts, is_simulated, work.config)
    for name, content in documents(results).items():
        work.sink.document(name, content)


STAGE = Stage(
    name="outcome",
    reads=READS,
    writes=(
        ENTRY,
        "outcome_curves",
        "outcome_scorer_curves",
        "shot_answers",
        "shot_scores",
        "shot_contrasts",
        "outcome_judgements",
        "outcome.html",
        "outcome.json",
        "outcome.tex",
    ),
    config=OutcomeConfig,
    run=run,
    version=VERSION,
    summary="Predicts whether shots go in: trains the predictors and the scorer, scores every row, writes its pages",
    shard_by="training",
    completed=completed,
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    lowers=("outcome.train.batch",),
    conclude=conclude,
    outside_shards=("utility", "shuffle_seed", "bootstrap", "confidence", "seed", "scorer"),
    output=Output("test shots", "shot_answers", ("shot_id",), lambda table: len(set(table["shot_id"].to_pylist()))),
)
