"""TrajPilot's token in the attentive probe: predicts actions as events, fine-tunes a probe per row, and scores it.

Source: paper, appendix on EPIC-KITCHENS-100; docs/decisions/epic-token.md.
"""

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.events import TOKEN_ROWS, ActionTokenConfig, CompletedActionToken, ProbeScore, TokenContrast
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import FINAL, TWINNED, chains_in, folds_of, model_key, seeds_of, twin_of
from trajpilot_core.engine.progress import portion
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import InputError, TrainingError
from trajpilot_core.stages import probe
from trajpilot_core.stages.pretrained import predictor_facts
from trajpilot_core.stages.trained import Facts, Fits, TrainedStage, Trainings, named
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.data.action_clips import ClipData
    from trajpilot_core.data.events import ActionEvents
    from trajpilot_core.stages.token_parts import TunedSeed

ENTRY = "token_models"
TABLES = ("token_scores", "token_contrasts", "token_checks", "token_tuned_curves")
"""Written by the conclusion of the stage; its trainings write the curves of the predictors."""
CLIPS, TRAINED = ("takes", "segments", "details", "features"), ("folds", "e_tau", probe.ENTRY)
READS = (*CLIPS, "motions", "video_motions", "text_bank", *TRAINED)
VERSION = 5  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> CompletedActionToken:
    """Return the settings of the stage with those of predictor, scorer and probe that it uses."""
    scorer = config.scorer.replace(ablations=())
    return CompletedActionToken.completing(
        config.action_token, predictor=config.predictor, scorer=scorer, probe=probe.completed(config)
    )


def trainings(inputs: Inputs, cfg: CompletedActionToken) -> Trainings:
    """Return the predictors of every chain and seed, on which the rest of the stage depends.

    Raises InputError: no probe is enabled, or no seed has both an E_tau and a probe.
    """
    if cfg.tuned.tokens is None:
        raise InputError("action_token.is_asked without a probe: set probe.tokens=temporal, or full")
    return named(product(chains_in(folds_of(inputs)), seeds_to_run(inputs), TWINNED))


def facts(inputs: Inputs, cfg: CompletedActionToken, known: Trainings) -> dict[str, Facts]:
    """Return what decides each training: all clips, the E_tau of its chain and seed, and the initial weights."""
    reads, first = (name for name in READS if name != probe.ENTRY), {name: twin_of(name) for name in known}
    return predictor_facts(inputs, cfg.predictor, known, reads, first)


def seeds_to_run(inputs: Inputs) -> list[int]:
    """Return the seeds of E_tau that also have a probe, from which the rows of a seed start.

    Raises InputError: there is none.
    """
    encoders, probes = seeds_of(inputs.parts("e_tau")), seeds_of(inputs.parts(probe.ENTRY))
    both = [seed for seed in encoders if seed in probes]
    if not both:
        raise InputError(
            f"no seed has both an E_tau ({', '.join(map(str, encoders))}) and a probe "
            f"({', '.join(map(str, probes)) or 'none'}); set probe.seeds to some of alignment.seeds"
        )
    return both


def fits(work: Work[CompletedActionToken], wanted: Trainings) -> Fits:
    """Prepare the predictors of chains and seeds.

    Raises TrainingError: no clip to fit on, or no training clip that a chain has not seen.
    """
    from trajpilot_core.stages.event_run import event_fits
    from trajpilot_core.stages.token_parts import loaded
    from trajpilot_core.training.fit_event import ACTION_FIT

    this, _ = loaded(work)
    if not any(len(this.held_out(chain)) for chain in this.chains):
        raise TrainingError(
            "no training clip is left for fine-tuning that its predictor has not seen; add training videos"
        )
    return event_fits(this, wanted, ACTION_FIT)


def conclude(work: Work[CompletedActionToken]) -> None:
    """Fit the scorers, fine-tune a probe per row and seed, answer the tested clips and score the answers."""
    from trajpilot_core.stages.event_run import seed_models
    from trajpilot_core.stages.full_probe import PatchProbes
    from trajpilot_core.stages.token_parts import loaded, tune_seed
    from trajpilot_core.training.loop import one_thread

    (this, data), cfg, seeds = loaded(work), work.config, seeds_to_run(work.inputs)
    curve = [row for written in work.trained.values() for row in rows_of(CurvePoint, written.table("token_curves"))]
    patches = PatchProbes(work.inputs, work.runtime, data, cfg) if cfg.tuned.tokens == "full" else None
    tuned_epochs = cfg.epochs * (1 if patches else len(TOKEN_ROWS) * len(cfg.rates) * len(cfg.decays))
    steps = [cfg.scorer.train.epochs, tuned_epochs] * len(seeds)
    total, tuned, of_scorers, about = sum(steps), [], list[CurvePoint](), {"config": cfg.model_dump_json()}
    for at, seed in enumerate(seeds):
        before = sum(steps[: 2 * at])
        with one_thread(work.runtime.device):
            makers, of_scorer = seed_models(this, seed, portion(work.runtime.progress, before, total))
        progress = portion(work.runtime.progress, before + cfg.scorer.train.epochs, total)
        with one_thread(work.runtime.device):
            tuned.append(tune_seed(this, seed, makers, patches, replace(work.runtime, progress=progress)))
        for name, model in tuned[-1].models.items():
            tensors = {key: value.cpu().numpy() for key, value in model.state_dict().items()}
            work.sink.model(ENTRY, model_key(FINAL, seed, name), tensors)
        of_scorers += of_scorer
        about[model_key(FINAL, seed, "scorer")] = makers[this.chains[0]].decision.model_dump_json()
    work.sink.models(ENTRY, about)
    with one_thread(work.runtime.device):
        write_results(work, tuned, (curve, of_scorers), this.events, data)


def write_results(
    work: Work[CompletedActionToken],
    tuned: "list[TunedSeed]",
    curves: tuple[list[CurvePoint], list[CurvePoint]],
    events: "ActionEvents",
    data: "ClipData",
) -> None:
    """Score and judge the answers of all seeds, and write tables; `curves` are those of predictors and of scorers."""
    import numpy as np

    from trajpilot_core.data.events import DEV
    from trajpilot_core.evaluation.action_scores import (
        TestedClips,
        action_scores,
        check_splits,
        check_trained,
        contrasts_of,
        judge_tokens,
    )
    from trajpilot_core.evaluation.event_rows import TOKEN_NAMES

    rows = data.rows("test")
    takes, numbers = np.unique([data.take_ids[row] for row in rows], return_inverse=True)
    tested = TestedClips(data.clips.of(rows), numbers)
    answered = [row for seed in tuned for row in seed.answered]
    contrasts = contrasts_of(answered, tested, work.config)
    learned = [data.take_ids[row] for split in ("train", "dev") for row in data.rows(split)]
    tuned_curve = [point for seed in tuned for point in seed.curve]
    checks = [
        *judge_tokens(contrasts, TOKEN_NAMES),
        check_splits(takes.tolist(), learned).replace(check="leak: no scored video was fine-tuned on"),
        *check_trained([*curves[0], *curves[1]], events.labels[events.rows(DEV)].numpy()),
        *(check for seed in tuned for check in seed.checks),
    ]
    scores = [score for row in answered for score in action_scores(row, tested, work.config.tuned)]
    work.sink.table("token_scores", table_of(ProbeScore, scores))
    work.sink.table("token_contrasts", table_of(TokenContrast, contrasts))
    work.sink.table("token_checks", table_of(Judgement, checks))
    work.sink.table("token_tuned_curves", table_of(CurvePoint, [*curves[1], *tuned_curve]))
    work.sink.count(len(events), len(events))


STAGE = TrainedStage(ENTRY, "token_curves", trainings, facts, fits, conclude, TABLES).stage(
    name="action_token",
    reads=READS,
    config=ActionTokenConfig,
    version=VERSION,
    summary="Predicts actions in event form and fine-tunes the attentive probe with that token, next to controls "
    "equally long",
    completed=completed,
    lowers=("action_token.train.batch",),
    outside_shards=("utility", "rates", "decays", "epochs", "precision", "shuffle_seed", "scorer", "probe"),
)
