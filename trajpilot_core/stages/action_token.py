"""TrajPilot's token in the attentive probe: predicts actions in event form, fine-tunes a probe for each row, scores.

Source: paper, appendix on EPIC-KITCHENS-100; docs/decisions/epic-token.md.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.action_token import TOKEN_ROWS, ActionTokenConfig, TokenContrast
from schemas.arrow import table_of
from schemas.base import Record
from schemas.config import PipelineConfig
from schemas.probe import ProbeAnswer, ProbeScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import FINAL, TWIN, TWINNED, Chain, model_key, seeds_of
from trajpilot_core.engine.needs import Needs, NeedsMachine
from trajpilot_core.engine.progress import portion
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import probe
from trajpilot_core.stages.needs_of_probe import token_needs

if TYPE_CHECKING:
    from trajpilot_core.data.action_clips import ClipData
    from trajpilot_core.data.action_events import ActionEvents
    from trajpilot_core.stages.token_parts import TunedSeed

ENTRY = "token_models"
TABLES: dict[str, type[Record]] = {
    "token_scores": ProbeScore,
    "token_contrasts": TokenContrast,
    "token_answers": ProbeAnswer,
    "token_checks": Judgement,
    "token_curves": CurvePoint,
}
VERSION = 1  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> ActionTokenConfig:
    """Return the settings of the stage with those of predictor, scorer and probe that it works with."""
    scorer = config.scorer.replace(plus=None, ablations=())
    return config.action_token.replace(predictor=config.predictor, scorer=scorer, probe=config.probe)


def needs(sizes: CorpusSizes, cfg: ActionTokenConfig, machine: NeedsMachine) -> Needs:
    """State what fitting predictors and probes needs."""
    return token_needs(sizes, cfg, machine)


def sources(inputs: Inputs, cfg: ActionTokenConfig, data_root: str) -> list[Source]:
    """Return nothing: what the stage reads is in the store.

    Raises:
        InputError: no probe was asked for.
    """
    if cfg.tuned.tokens is None:
        raise InputError("action_token.is_asked without a probe: set probe.tokens=temporal")
    return []


def run(work: Work[ActionTokenConfig]) -> None:
    """Fit predictors and scorers, fine-tune a probe for each row and seed, answer the tested clips and score them."""
    from trajpilot_core.data.action_events import load_events
    from trajpilot_core.stages.token_parts import TokenRun, makers_of_seed, predictor_jobs, tune_seed
    from trajpilot_core.training.fit_action import train_action
    from trajpilot_core.training.jobs import run_jobs
    from trajpilot_core.training.loop import one_thread

    cfg = work.config
    events, data = load_events(work.inputs, cfg.seen_s, cfg.tuned.gap_s or 0.0)
    this = TokenRun(work, events, data)
    seeds = seeds_to_run(work)
    refuse_other_run(work, this.chains, seeds)
    jobs = predictor_jobs(this, seeds)
    tuned_epochs = len(TOKEN_ROWS) * len(cfg.rates) * len(cfg.decays) * cfg.epochs
    steps = [len(jobs) * cfg.train.epochs, *([cfg.ranking.train.epochs, tuned_epochs] * len(seeds))]
    total = sum(steps)
    run_jobs(jobs, train_action, replace(work.runtime, progress=portion(work.runtime.progress, 0, total)))
    found, curve = [], [row for job in jobs for row in curve_of(job)]
    for at, seed in enumerate(seeds):
        before = sum(steps[: 1 + 2 * at])
        with one_thread(work.runtime.device):
            makers, scorer_curve = makers_of_seed(this, seed, portion(work.runtime.progress, before, total))
        own = portion(work.runtime.progress, before + cfg.ranking.train.epochs, total)
        with one_thread(work.runtime.device):
            tuned = tune_seed(this, seed, makers, replace(work.runtime, progress=own))
        curve += scorer_curve
        found.append(tuned)
    with one_thread(work.runtime.device):
        write_results(work, found, curve, events, data)


def seeds_to_run(work: Work[ActionTokenConfig]) -> list[int]:
    """Return the seeds of E_tau that have a probe, with which the rows of a seed begin.

    Raises:
        InputError: there is none.
    """
    encoders = seeds_of(work.inputs.models("e_tau").keys)
    probes = seeds_of(work.inputs.models(probe.ENTRY).keys)
    both = [seed for seed in encoders if seed in probes]
    if not both:
        raise InputError(
            f"no seed has both an E_tau ({', '.join(map(str, encoders))}) and a probe "
            f"({', '.join(map(str, probes)) or 'none'}); set probe.seeds to some of alignment.seeds"
        )
    return both


def refuse_other_run(work: Work[ActionTokenConfig], chains: tuple[Chain, ...], seeds: list[int]) -> None:
    """Refuse weights of another run that have seen what is held out here, before anything is trained.

    Raises:
        InputError: names the takes and captures (docs/decisions/pretrained.md).
    """
    from trajpilot_core.data.contributions import folds_of
    from trajpilot_core.stages.pretrained import initial_weights

    wanted = {
        f"{model_key(chain, seed, variant)}{TWIN}": (chain, seed, variant)
        for chain in chains
        for seed in seeds
        for variant in TWINNED
    }
    initial_weights(work.inputs, work.config.net, wanted, folds_of(work.inputs))


def curve_of(job: object) -> list[CurvePoint]:
    """Return the curve of a training that has ended."""
    from trajpilot_core.training.jobs import TrainingJob, job_result

    assert isinstance(job, TrainingJob)
    return job_result(job)[1]


def write_results(
    work: Work[ActionTokenConfig],
    found: "list[TunedSeed]",
    curve: list[CurvePoint],
    events: "ActionEvents",
    data: "ClipData",
) -> None:
    """Score and judge the answers of all seeds, and write tables and models."""
    import numpy as np

    from trajpilot_core.data.action_events import DEV
    from trajpilot_core.evaluation.action_scores import TestedClips, action_scores, check_splits
    from trajpilot_core.evaluation.token_rows import TOKEN_NAMES
    from trajpilot_core.evaluation.token_scores import check_length, check_trained, contrasts_of, judge_tokens

    rows = data.rows("test")
    takes, numbers = np.unique([data.take_ids[row] for row in rows], return_inverse=True)
    tested = TestedClips(data.clips.of(rows), numbers)
    answered = [one for seed in found for one in seed.answered]
    contrasts = contrasts_of(answered, tested, work.config)
    learned = [data.take_ids[row] for split in ("train", "dev") for row in data.rows(split)]
    tuned_curve = [point for seed in found for point in seed.curve]
    checks = [
        *judge_tokens(contrasts, TOKEN_NAMES),
        check_length(tuned_curve, work.config.epochs),
        check_splits(takes.tolist(), learned).replace(check="leak: no scored video was fine-tuned on"),
        *check_trained(curve, events.labels[events.rows(DEV)].numpy()),
        *(check for seed in found for check in seed.checks),
    ]
    scores = [score for one in answered for score in action_scores(one, tested, work.config.tuned)]
    said = [row for one in answered for row in probe.answer_table(one, data, rows).to_pylist()]
    tables: dict[str, list[Record]] = {
        "token_scores": [*scores],
        "token_contrasts": [*contrasts],
        "token_answers": [ProbeAnswer.model_validate(row) for row in said],
        "token_checks": [*checks],
        "token_curves": [*curve, *tuned_curve],
    }
    for name, record in TABLES.items():
        work.sink.table(name, table_of(record, tables[name]))
    about = {"config": work.config.model_dump_json()}
    for one in found:
        for name, state in one.weights.items():
            tensors = {key: value.cpu().numpy() for key, value in state.items()}
            work.sink.model(ENTRY, model_key(FINAL, one.seed, name), tensors)
        about[model_key(FINAL, one.seed, "scorer")] = one.decision
    work.sink.models(ENTRY, about)
    work.sink.count(len(events), len(events))


STAGE = Stage(
    name="action_token",
    reads=(
        "takes",
        "segments",
        "details",
        "features",
        "motions",
        "video_motions",
        "text_bank",
        "folds",
        "e_tau",
        "probe_models",
    ),
    writes=(ENTRY, *TABLES),
    config=ActionTokenConfig,
    run=run,
    version=VERSION,
    summary="Predicts actions in event form and fine-tunes the attentive probe with that token, next to controls "
    "equally long",
    completed=completed,
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    needs=needs,
)
