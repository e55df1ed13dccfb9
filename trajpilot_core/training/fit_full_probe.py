"""Fit the grid of attentive probes on every patch of clips that are encoded anew in every epoch, all trials at once.

The tokens of a batch are made once and read by every trial: encoding them for each would be most of the work. Trials
share no parameter and no gradient, so that each goes as it would alone. Source: docs/decisions/epic-probe.md.

Shapes: M clips, B clips of a batch, N tokens, D width, K ranked classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from schemas.probe import ProbeConfig
from schemas.results import CurvePoint
from trajpilot_core.arrays import Codes
from trajpilot_core.metrics.epic_kitchens import ACTION, PARTS, ActionPart, ranked
from trajpilot_core.models.attentive_probe import AttentiveProbe, probe_loss
from trajpilot_core.training.clip_stream import ClipStream
from trajpilot_core.training.dev_scores import sampled_fit
from trajpilot_core.training.fit_probe import (
    SELECTED,
    ChosenProbe,
    ProbeTask,
    Trial,
    cosine,
    grid,
    original_training,
    shares_of,
)
from trajpilot_core.training.loop import EpochDone, FittedModel, TrainedPart, Training, fit, index_batches, seeded

BETWEEN = " of trial "
"""Between a quantity and the number of its trial, in the curve of the whole grid."""


class ProbeGrid(nn.Module):
    """The probes of a grid, which begin alike."""

    def __init__(self, task: ProbeTask, cfg: ProbeConfig, seed: int) -> None:
        super().__init__()
        self.probes = nn.ModuleList()
        for _ in grid(cfg):
            with seeded(seed):
                self.probes.append(AttentiveProbe(task.shape(cfg)))


@dataclass
class FullFit:
    """What the training of a grid works on."""

    grid: ProbeGrid
    task: ProbeTask
    cfg: ProbeConfig
    stream: ClipStream
    """Of the clips of the task."""
    seed: int
    under_way: Iterator[Tensor] = field(default_factory=lambda: iter(()))
    """Tokens of the batches of this epoch that are not learned yet."""
    lost: list[Tensor] = field(default_factory=list)
    """Loss of each trial, (trials,), of the batches of this epoch that are."""

    def begin(self, generator: torch.Generator) -> list[Tensor]:
        """Sample the batches and views of an epoch, and begin to decode them."""
        fitted = torch.nonzero(~self.task.is_dev)[:, 0].cpu()
        batches = [fitted[rows] for rows in index_batches(len(fitted), self.cfg.batch, generator)]
        views = [[self.stream.sampled(row, self.cfg, generator) for row in rows.tolist()] for rows in batches]
        self.under_way, self.lost = self.stream.tokens(views), []
        return batches

    def loss(self, rows_B: Tensor) -> Tensor:
        """Return the sum of the losses of all trials, a scalar; of few clips and one trial at a time activations are
        kept."""
        tokens_BND, columns_B3 = next(self.under_way), self.task.columns[rows_B.to(self.task.columns.device)]
        lost = torch.stack([self._trial_loss(probe, tokens_BND, columns_B3) for probe in self.grid.probes])
        self.lost.append(lost.detach())
        return lost.sum()

    def _trial_loss(self, probe: nn.Module, tokens_BND: Tensor, columns_B3: Tensor) -> Tensor:
        """Return the loss of one trial, a scalar; its activations are made again for the gradients, part by part."""
        each = self.cfg.clips_at_once
        losses: list[Tensor] = [
            checkpoint(part_loss, probe, tokens_BND[at : at + each], columns_B3[at : at + each], use_reentrant=False)
            for at in range(0, len(columns_B3), each)
        ]
        return torch.stack(losses).sum()

    def measure(self) -> dict[str, float]:
        """Return every metric of every trial on dev and on as many fitted clips, and the best of dev."""
        self.under_way = iter(())  # the decoders of the epoch are not needed any more
        fitted, dev = (torch.nonzero(self.task.is_dev == is_dev)[:, 0].cpu() for is_dev in (False, True))
        lost = torch.stack(self.lost).mean(0).tolist() if self.lost else []
        found = {f"train/loss{BETWEEN}{number}": float(one) for number, one in enumerate(lost)}
        own = {part: np.arange(len(self.task.classes[part])) for part in PARTS}
        scored = {"dev": dev, **sampled_fit({"train": fitted}, {"train": dev}, self.seed)}
        for split, rows in scored.items():
            answered = answers_of(list(self.grid.probes), self.stream, rows.tolist(), own, self.cfg)
            for number, rankings in enumerate(answered):
                shares = shares_of(self.task.columns[rows.to(self.task.columns.device)].cpu().numpy(), rankings)
                found |= {f"{split}/{name}{BETWEEN}{number}": share for name, share in shares.items()}
        best = max(found[f"dev/{ACTION.id}{BETWEEN}{number}"] for number in range(len(self.grid.probes)))
        return {SELECTED: best, **found}


def part_loss(probe: nn.Module, tokens_BND: Tensor, columns_B3: Tensor) -> Tensor:
    """Return the loss of one trial on some clips, a scalar: a sum over clips, so that parts of a batch add up."""
    return probe_loss(probe(tokens_BND.float()), columns_B3)


@torch.no_grad()
def answers_of(
    probes: Sequence[nn.Module],
    stream: ClipStream,
    rows: Sequence[int],
    classes: Mapping[ActionPart, Codes],
    cfg: ProbeConfig,
) -> list[dict[ActionPart, Codes]]:
    """Return for each probe part -> (M, K) ranked classes of the clips `rows`, shown as the features have them.

    Args:
        probes: in evaluation mode; the tokens of a clip are made once for all.
        stream: of the clips.
        rows: which of its clips.
        classes: part -> (C,) the class of each column.
        cfg: how many clips are answered at once.
    """
    parts: list[list[dict[ActionPart, Codes]]] = [[] for _ in probes]
    views = [[stream.whole(row) for row in rows[at : at + cfg.batch]] for at in range(0, len(rows), cfg.batch)]
    for tokens_BND in stream.tokens(views):
        for at in range(0, len(tokens_BND), cfg.clips_at_once):
            some_BND = tokens_BND[at : at + cfg.clips_at_once].float()
            for number, probe in enumerate(probes):
                logits: dict[ActionPart, Tensor] = probe(some_BND)
                parts[number].append({name: ranked(one.cpu().numpy(), classes[name]) for name, one in logits.items()})
    return [{name: np.concatenate([one[name] for one in own]) for name in PARTS} for own in parts]


def fit_full_probe(
    name: str,
    seed: int,
    task: ProbeTask,
    cfg: ProbeConfig,
    stream: ClipStream,
    folder: Path,
    device: str,
    epoch_done: EpochDone,
    checkpoint_s: float,
) -> ChosenProbe:
    """Fit all trials of a seed side by side, and return the one with the best dev score of all epochs.

    Args:
        name: of the training, in the curves.
        seed: of weights, batches and views.
        task: clips and columns; its tokens are empty.
        cfg: the grid.
        stream: of the clips of the task, in their order.
        folder: of the checkpoint; one after every epoch.
        device: where the probes lie.
        epoch_done: called after each epoch.
        checkpoint_s: seconds between checkpoints.
    """
    trials = grid(cfg)
    own = FullFit(ProbeGrid(task, cfg, seed).to(device), task, cfg, stream, seed)
    first = trials[0]
    training = Training(
        name=name,
        seed=seed,
        model=own.grid,
        batches=own.begin,
        loss=own.loss,
        measure=own.measure,
        selected=SELECTED,
        rate=cosine,
        decays_all=True,
        parts=[
            TrainedPart(probe, trial.rate / first.rate, trial.decay)
            for probe, trial in zip(own.grid.probes, trials, strict=True)
        ],
    )
    fitted = fit(training, original_training(cfg, first), folder, device, epoch_done, checkpoint_s)
    return chosen_of(fitted, name, trials)


def chosen_of(fitted: FittedModel, name: str, trials: Sequence[Trial]) -> ChosenProbe:
    """Return the trial whose score was the best of the epoch that was kept, ties to the first, and a curve of each."""
    of_trial: list[list[CurvePoint]] = [[] for _ in trials]
    for point in fitted.curve:
        quantity, between, of = point.quantity.partition(BETWEEN)
        if between:
            of_trial[int(of)].append(point.replace(quantity=quantity))

    def score(number: int) -> float:
        """On dev in the epoch that was kept."""
        wanted = (fitted.best_epoch, "dev", ACTION.id)
        return next(p.value for p in of_trial[number] if (p.epoch, p.split, p.quantity) == wanted)

    best = max(range(len(trials)), key=lambda number: (score(number), -number))
    curve = [*of_trial[best]]
    for number, trial in enumerate(trials):
        if number != best:
            curve += [point.replace(model=f"{name}, {trial.name}") for point in of_trial[number]]
    begins = f"probes.{best}."
    weights = {key.removeprefix(begins): value for key, value in fitted.state.items() if key.startswith(begins)}
    return ChosenProbe(trials[best], weights, curve)
