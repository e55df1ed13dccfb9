"""Fit attentive probes on the tokens of a frozen encoder: a grid of learning rates and weight decays; dev chooses one
point of it for all metrics. Source: docs/decisions/epic-probe.md.

Probes that read one more token are fine-tuned from the chosen one, in the same way for every row: the same clips, grid,
epochs and batches. Source: docs/decisions/epic-token.md.

Shapes: N clips (fitted ones and dev), T tokens, D width, E text width, C classes of a part, K ranked classes.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from schemas.events import CompletedActionToken, ProbeConfig, TokenRow
from schemas.results import CurvePoint
from schemas.training import TrainConfig
from trajpilot_core.arrays import Codes
from trajpilot_core.data.action_clips import ClipData
from trajpilot_core.memory import in_parts
from trajpilot_core.metrics.epic_kitchens import (
    ACTION,
    EPIC_METRICS,
    PARTS,
    ActionPart,
    class_mean,
    clip_mean,
    hits_of,
    ranked,
)
from trajpilot_core.models.attentive_probe import AttentiveProbe, ProbeShape, probe_loss
from trajpilot_core.models.events import TokenProbe
from trajpilot_core.training.dev_scores import row_training
from trajpilot_core.training.jobs import Fit, JobResult, Task, TrainingJob
from trajpilot_core.training.loop import Training, seeded

M = TypeVar("M", bound=nn.Module)
AT_ONCE = 512
"""Clips that are predicted at once."""
SELECTED = f"dev/{ACTION.id}"
"""The score that chooses epoch and trial, whatever metric is printed."""
PROBE = "probe"
"""Takes the place of the chain in the names of these trainings."""


@dataclass(frozen=True)
class ProbeTask(Task):
    """The clips that a probe is fitted and measured on."""

    SHARED: ClassVar[tuple[str, ...]] = ("tokens", "columns", "classes")

    tokens: Tensor
    """(N, T, D) float16."""
    columns: Tensor
    """(N, 3) long: the columns of verb, noun and action."""
    is_dev: Tensor
    """(N,) bool."""
    classes: dict[ActionPart, Tensor]
    """Part -> (C,) long: the class of each column, of actions by `pair_codes`."""

    def shape(self, cfg: ProbeConfig) -> ProbeShape:
        """Return the sizes of its probe."""
        counts = [len(self.classes[part]) for part in PARTS]
        return ProbeShape(self.tokens.shape[2], counts[0], counts[1], counts[2], heads=cfg.heads, blocks=cfg.blocks)

    def splits(self) -> dict[str, Tensor]:
        """Return `dev` and `train` -> (n,) long, the numbers of its clips."""
        return {split: torch.nonzero(self.is_dev == (split == "dev"))[:, 0] for split in ("dev", "train")}

    def column_numbers(self) -> dict[ActionPart, Codes]:
        """Return part -> (C,): the columns themselves as classes, for scores without classes."""
        return {part: np.arange(len(self.classes[part])) for part in PARTS}


def probe_task(data: ClipData) -> ProbeTask:
    """Return the clips of training and dev; columns are their classes, ascending."""
    rows = np.concatenate([data.rows("train"), data.rows("dev")])
    classes = {part: np.unique(data.clips.classes(part)[rows]) for part in PARTS}
    columns = [np.searchsorted(classes[part], data.clips.classes(part)[rows]) for part in PARTS]
    return ProbeTask(
        torch.from_numpy(data.tokens[rows]),
        torch.from_numpy(np.stack(columns, axis=1).astype(np.int64)),
        torch.from_numpy(np.isin(rows, data.rows("dev"))),
        {part: torch.from_numpy(column_classes) for part, column_classes in classes.items()},
    )


class Trial(NamedTuple):
    """One point of the grid."""

    rate: float
    decay: float

    @property
    def name(self) -> str:
        """Return the name that is printed."""
        return f"rate {self.rate:g}, decay {self.decay:g}"


def grid(cfg: ProbeConfig) -> list[Trial]:
    """Return the trials in order."""
    return [Trial(*values) for values in product(cfg.rates, cfg.decays)]


def _visual_training(job: TrainingJob, task: ProbeTask, cfg: ProbeConfig) -> Training:
    return _probe_training(job, task, cfg, lambda: AttentiveProbe(task.shape(cfg)))


def n_trials(cfg: ProbeConfig | CompletedActionToken) -> int:
    """Return the number of trials of the grid of a probe, or of its fine-tuning."""
    return len(cfg.rates) * len(cfg.decays)


FIT = Fit(ProbeTask, ProbeConfig, _visual_training, n_trials)


def original_training(cfg: ProbeConfig, trial: Trial) -> TrainConfig:
    """Return the original's training of one trial."""
    return TrainConfig(
        epochs=cfg.epochs,
        patience=None,
        batch=cfg.batch,
        lr=trial.rate,
        min_lr=0.0,
        weight_decay=trial.decay,
        betas=(0.9, 0.999),
        warmup=0.0,
        clip=None,
        precision=cfg.precision,
    )


def _probe_training(
    job: TrainingJob, task: ProbeTask, cfg: ProbeConfig, build: Callable[[], nn.Module], *more: Tensor
) -> Training:
    """Return a trial of a grid with a new probe, which reads the tokens and `more` (N, ...) of each clip; all trials
    start with equal weights."""
    trial = grid(cfg)[job.trial]
    with seeded(job.seed):
        model = build().to(job.device)

    def loss(rows: Tensor) -> Tensor:
        inputs = (values[rows].float() for values in (task.tokens, *more))
        return probe_loss(model(*inputs), task.columns[rows])

    def shares(rows: Tensor) -> dict[str, float]:
        rankings = answers(model, task.tokens[rows], task.column_numbers(), *(values[rows] for values in more))
        return shares_of(task.columns[rows].cpu().numpy(), rankings)

    named, train = job._replace(name=f"{job.name}, {trial.name}"), original_training(cfg, trial)
    return row_training(named, model, train, task.splits(), loss, shares, **ORIGINAL)


def cosine(step: int, total: int, cfg: TrainConfig) -> float:
    """Return the original's rate of a step: a cosine to exactly zero, without warm-up."""
    return cfg.lr * 0.5 * (1 + math.cos(math.pi * (step + 1) / total))


ORIGINAL: Mapping[str, Any] = {"selected": SELECTED, "rate": cosine, "decays_all": True}
"""Fields of the training of a probe: the rate and the decay of the original."""


def shares_of(columns_N3: Codes, rankings: Mapping[ActionPart, Codes]) -> dict[str, float]:
    """Return metric -> its value as a share, of part -> (N, K) ranked columns and (N, 3) true ones of all parts."""
    shares = {}
    for spec in EPIC_METRICS.values():
        true = columns_N3[:, PARTS.index(spec.part)]
        hits = hits_of(true, rankings[spec.part], spec.k)
        shares[spec.id] = (class_mean(true, hits) if spec.over == "classes" else clip_mean(hits)) / 100
    return shares


@torch.no_grad()
def answers(
    model: nn.Module, tokens_NTD: Tensor, classes: Mapping[ActionPart, Codes], *more: Tensor, at_once: int = AT_ONCE
) -> dict[ActionPart, Codes]:
    """Return part -> (N, K) classes that a probe in evaluation mode ranks for tokens (N, T, D) on any device, and
    further inputs (N, ...); `classes` are part -> (C,) the class of each column."""
    device = next(model.parameters()).device

    def part(rows: slice) -> dict[ActionPart, Codes]:
        logits = model(tokens_NTD[rows].to(device).float(), *(values[rows].to(device).float() for values in more))
        return {name: ranked(scores.cpu().numpy(), classes[name]) for name, scores in logits.items()}

    parts = in_parts(len(tokens_NTD), at_once, part)
    return {name: np.concatenate([rankings[name] for rankings in parts]) for name in PARTS}


class ChosenProbe(NamedTuple):
    """The result of a grid of probes: one trial for all metrics."""

    trial: Trial
    """The trial that dev chose."""
    weights: dict[str, Tensor]
    """Weights of its best epoch, on the CPU."""
    curve: list[CurvePoint]
    """Curves of all trials; the chosen one has the name of the training."""


def choose_probe(result: JobResult, cfg: ProbeConfig) -> ChosenProbe:
    """Return the trial of a grid that dev chose."""
    return ChosenProbe(grid(cfg)[result.trial], result.weights, result.curve)


def load_probe(build: Callable[[], M], chosen: ChosenProbe, device: str) -> M:
    """Return the chosen probe in evaluation mode; `build` returns one from the global random state."""
    with seeded(0):  # its weights are replaced
        model = build()
    model.load_state_dict(chosen.weights)
    return model.to(device).eval().requires_grad_(False)


def floor_rankings(task: ProbeTask, rows: int) -> dict[ActionPart, Codes]:
    """Return part -> (N, K): the most frequent classes of training and dev for each of `rows` clips; ties go to the
    earlier column."""
    rankings = {}
    for at, part in enumerate(PARTS):
        classes = task.classes[part].cpu().numpy()
        counts = np.bincount(task.columns[:, at].cpu().numpy(), minlength=len(classes))
        rankings[part] = np.repeat(ranked(counts[None].astype(np.float64), classes), rows, axis=0)
    return rankings


@dataclass(frozen=True)
class TokenTask(ProbeTask):
    """The clips that one row is fine-tuned and measured on, with one more token."""

    SHARED: ClassVar[tuple[str, ...]] = ("tokens", "columns", "is_dev", "classes", "begun")
    token: Tensor
    """(N, E) float16: the additional token of each clip; zeros if the row has none."""
    begun: dict[str, Tensor]
    """Weights of the visual probe."""


def new_token_probe(row: TokenRow, task: TokenTask, cfg: CompletedActionToken) -> TokenProbe:
    """Build the model of a row from the global random state, and load the weights of the visual probe."""
    model = TokenProbe(row, task.shape(cfg.tuned), task.token.shape[1])
    model.probe.load_state_dict(task.begun)
    return model


def _token_training(job: TrainingJob, task: TokenTask, cfg: CompletedActionToken) -> Training:
    row = cast(TokenRow, job.variant)
    return _probe_training(job, task, cfg.tuned, lambda: new_token_probe(row, task, cfg), task.token)


TOKEN_FIT = Fit(TokenTask, CompletedActionToken, _token_training, n_trials)


def name_of(row: TokenRow) -> str:
    """Return the name of a row's training."""
    return f"{PROBE}/{row}"
