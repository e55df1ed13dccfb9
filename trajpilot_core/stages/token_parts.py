"""The parts of the stage `action_token`: its trainings, one after the other. Source: docs/decisions/epic-token.md.

Shapes: N clips, E text width.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from schemas.events import CompletedActionToken, TokenRow
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Codes
from trajpilot_core.data.action_clips import ClipData
from trajpilot_core.data.cross_fitting import FINAL, TWINNED, Chain, model_key, noted_fitted
from trajpilot_core.data.events import DEV, TEST, ActionEvents, columns_of, load_events
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.evaluation.action_scores import AnsweredRow, check_motion, check_unseen
from trajpilot_core.evaluation.event_rows import TOKEN_METHODS, TokenMaker, TokenModels, check_sight, token_scorer
from trajpilot_core.metrics.epic_kitchens import PARTS, ActionPart
from trajpilot_core.models.events import ActionPredictor, TokenProbe
from trajpilot_core.stages import probe
from trajpilot_core.stages.action_token import ENTRY
from trajpilot_core.stages.event_run import EventKind, EventRun
from trajpilot_core.stages.full_probe import PatchProbes
from trajpilot_core.training.event_scorer import action_target
from trajpilot_core.training.fit_event import ActionTask
from trajpilot_core.training.fit_probe import (
    TOKEN_FIT,
    ProbeTask,
    TokenTask,
    answers,
    choose_probe,
    load_probe,
    name_of,
    new_token_probe,
)
from trajpilot_core.training.jobs import TrainingJob, put_task, run_jobs

TokenRun: TypeAlias = EventRun[ActionEvents]
ACTIONS = EventKind(
    ENTRY,
    "action",
    ActionPredictor,
    ActionTask,
    ("labels", "bank"),
    lambda chain: TWINNED,
    lambda events, cfg, embed: action_target(events, cfg),
)


def loaded(work: Work[CompletedActionToken]) -> tuple[TokenRun, ClipData]:
    """Load the clips of a run, as events and as clips."""
    events, data = load_events(work.inputs, work.config.seen_s, work.config.tuned.gap_s)
    return TokenRun(work, events, ACTIONS), data


class TunedSeed(NamedTuple):
    """Answers of the rows of one seed, and their models."""

    answered: list[AnsweredRow]
    curve: list[CurvePoint]
    """Curve of the fine-tuning."""
    checks: list[Judgement]
    models: dict[str, nn.Module]


def clips_of(this: TokenRun) -> dict[Chain, list[Tensor]]:
    """Return chain -> the clips for which it makes tokens for fine-tuning, long, each part of one split.

    A training clip gets the token of a chain that has not seen its video, a dev clip that of `final`.
    """
    final, dev = this.chains[0], this.events.rows(DEV)
    return {chain: [this.held_out(chain), *([dev] if chain == final else [])] for chain in this.chains}


def tokens_of(this: TokenRun, makers: Mapping[Chain, TokenMaker], row: TokenRow) -> Tensor:
    """Return (n, E) float16 on the CPU: the tokens of a row for the clips of `clips_of`, in that order."""
    method = [method for method in TOKEN_METHODS if method.id == row]
    parts = []
    for chain, clips in clips_of(this).items():
        for part in clips:
            if len(part):  # shuffled within a split
                answers = makers[chain].answers(this.here, part.to(this.work.runtime.device), method)[row]
                assert answers is not None
                parts.append(answers.prediction.cpu().half())
    return torch.cat(parts)


def probe_task(this: TokenRun, seed: int) -> tuple[ProbeTask, Tensor, dict[str, Tensor]]:
    """Return the clips that every row is fine-tuned and measured on, their numbers, and the initial weights."""
    models = this.work.inputs.models(probe.ENTRY)
    noted = json.loads(models.about["classes"])
    classes = {part: np.array(noted[part], dtype=np.int64) for part in PARTS}
    rows = torch.cat([part for clips in clips_of(this).values() for part in clips])
    task = ProbeTask(
        this.events.tokens[rows],
        columns_of(this.events, classes)[rows],
        this.events.split[rows] == DEV,
        {part: torch.from_numpy(codes) for part, codes in classes.items()},
    )
    begun = models.read(model_key(FINAL, seed, probe.VARIANT))
    return task, rows, {name: torch.tensor(value) for name, value in begun.items()}


def tune_seed(
    this: TokenRun, seed: int, makers: Mapping[Chain, TokenMaker], patches: PatchProbes | None, runtime: Runtime
) -> TunedSeed:
    """Fine-tune the probes of a seed and answer the tested clips with them.

    Without `patches` probes read the tokens that the features keep; `runtime` has the progress of this part.

    Raises LeakError: a row sees more than it declares.
    """
    (clips, numbers, begun), cfg = probe_task(this, seed), this.work.config
    tokens = {method.id: tokens_of(this, makers, method.id) for method in TOKEN_METHODS}
    classes = {part: codes.numpy() for part, codes in clips.classes.items()}

    def read(probes: Sequence[TokenProbe], rows: Tensor, given: Sequence[Tensor]) -> list[dict[ActionPart, Codes]]:
        """Return the ranked classes of each probe."""
        if patches is not None:
            return patches.read(probes, rows, given, classes)
        stored = this.here.tokens[rows]
        return [answers(probe, stored, classes, token) for probe, token in zip(probes, given, strict=True)]

    if patches is not None:
        chosen = patches.tuned(seed, clips, numbers, tokens, begun, runtime.progress)
    else:  # the rows one after the other
        tasks = {row: TokenTask(**vars(clips), token=token, begun=begun) for row, token in tokens.items()}
        jobs, scratch = dict[TokenRow, TrainingJob](), this.folder(seed) / "probes"
        for row, task in tasks.items():
            put_task(scratch, scratch / row, task, is_first=not jobs)
            folders = scratch / row / row, scratch / row, scratch
            settings, device = cfg.model_dump_json(), runtime.device
            jobs[row] = TrainingJob(name_of(row), seed, row, *folders, settings, device, runtime.checkpoint_s)
        run_jobs(list(jobs.values()), TOKEN_FIT, runtime)
        choices = {row: choose_probe(TOKEN_FIT.result(job), cfg.tuned) for row, job in jobs.items()}
        builds = {row: partial(new_token_probe, row, task, cfg) for row, task in tasks.items()}
        chosen = {row: (load_probe(builds[row], best, runtime.device), best) for row, best in choices.items()}
    maker = makers[this.chains[0]]
    models = TokenModels(maker, {row: model for row, (model, _) in chosen.items()}, read)
    rows = this.here.rows(TEST)
    check_sight(TOKEN_METHODS, models, this.here, rows)
    by_row = models.answers(this.here, rows)
    answered = [AnsweredRow(row, seed, choice.trial.name, by_row[row].rankings) for row, (_, choice) in chosen.items()]
    curve = [point for _, choice in chosen.values() for point in choice.curve]
    probes: dict[str, nn.Module] = {f"probe_{row}": model for row, (model, _) in chosen.items()}
    return TunedSeed(answered, curve, seed_checks(this, seed, models), {**probes, "scorer": maker.scorer})


def seed_checks(this: TokenRun, seed: int, models: TokenModels) -> list[Judgement]:
    """Check what each model has seen, from the input clips of the trainings, and how often the gate opened."""
    opened = token_scorer(models.maker, this.here, this.here.rows(TEST)).opened
    assert opened is not None
    known = this.events.has_motion[this.events.rows(TEST)]
    fitted = {}
    for chain in this.chains:  # by the input tensors, not by the folds that these should follow, so that a leak shows
        notes = [noted_fitted(this.trained(chain, seed, variant).about) for variant in TWINNED]
        fitted[chain.name] = sorted({take for note in notes for takes in note.values() for take in takes})
    tokens = {
        chain.name: [this.events.take_ids[at] for at in torch.unique(this.events.take[torch.cat(clips)]).tolist()]
        for chain, clips in clips_of(this).items()
    }
    sight = "the action, its text, how long it lasts and head motion that is not seen exchanged; no token and no answer"
    return [
        check_unseen(tokens, fitted),
        Judgement(check=f"sight: every row, seed {seed}", verdict="holds", detail=f"{sight} changed in a bit"),
        check_motion(known.numpy(), int(opened.sum())),
    ]
