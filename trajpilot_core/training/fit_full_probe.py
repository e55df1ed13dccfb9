"""Fit the grid of attentive probes on every patch of clips that are encoded again in every epoch, all trials at once.

The tokens of a batch are computed once for all trials, because encoding is most of the work. Trials share no parameter
and no gradient, so each one trains as it would alone. Source: docs/decisions/epic-probe.md.

Shapes: M clips, B clips of a batch, N tokens, D width, K ranked classes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from schemas.events import ProbeConfig
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
"""Separates a quantity from the number of its trial in the curve of the whole grid."""


class ProbeGrid(nn.Module):
    """The probes of a grid, which start with equal weights."""

    def __init__(self, task: ProbeTask, cfg: ProbeConfig, seed: int) -> None:
        super().__init__()
        self.probes = nn.ModuleList()
        for _ in grid(cfg):
            with seeded(seed):
                self.probes.append(AttentiveProbe(task.shape(cfg)))


@dataclass
class FullFit:
    """The training of a grid."""

    grid: ProbeGrid
    task: ProbeTask
    cfg: ProbeConfig
    stream: ClipStream
    """The clips of the task."""
    seed: int
    pending: Iterator[Tensor] = field(default_factory=lambda: iter(()))
    """Tokens of the batches of this epoch that have not been used yet."""
    losses: list[Tensor] = field(default_factory=list)
    """Loss of each trial, (trials,), in the batches of this epoch so far."""

    def begin(self, generator: torch.Generator) -> list[Tensor]:
        """Sample the batches and views of an epoch, and start to decode them."""
        fitted = torch.nonzero(~self.task.is_dev)[:, 0].cpu()
        batches = [fitted[rows] for rows in index_batches(len(fitted), self.cfg.batch, generator)]
        views = [[self.stream.sampled(row, self.cfg, generator) for row in rows.tolist()] for rows in batches]
        self.pending, self.losses = self.stream.tokens(views), []
        return batches

    def loss(self, rows_B: Tensor) -> Tensor:
        """Return the sum of the losses of all trials, a scalar.

        Memory holds the activations of one trial and a few clips at a time.
        """
        tokens_BND, columns_B3 = next(self.pending), self.task.columns[rows_B.to(self.task.columns.device)]
        losses = torch.stack([self._trial_loss(probe, tokens_BND, columns_B3) for probe in self.grid.probes])
        self.losses.append(losses.detach())
        return losses.sum()

    def _trial_loss(self, probe: nn.Module, tokens_BND: Tensor, columns_B3: Tensor) -> Tensor:
        """Return the loss of one trial, a scalar; activations are recomputed for the gradients, part by part."""
        each = self.cfg.clips_at_once
        losses: list[Tensor] = [
            checkpoint(part_loss, probe, tokens_BND[at : at + each], columns_B3[at : at + each], use_reentrant=False)
            for at in range(0, len(columns_B3), each)
        ]
        return torch.stack(losses).sum()

    def measure(self) -> dict[str, float]:
        """Return every metric of every trial on dev and on as many fitted clips, and the best of dev."""
        self.pending = iter(())  # stops the decoders of the epoch
        fitted, dev = (torch.nonzero(self.task.is_dev == is_dev)[:, 0].cpu() for is_dev in (False, True))
        losses = torch.stack(self.losses).mean(0).tolist() if self.losses else []
        scores = {f"train/loss{BETWEEN}{number}": float(loss) for number, loss in enumerate(losses)}
        columns = {part: np.arange(len(self.task.classes[part])) for part in PARTS}
        scored = {"dev": dev, **sampled_fit({"train": fitted}, {"train": dev}, self.seed)}
        for split, rows in scored.items():
            all_rankings = answers_of(list(self.grid.probes), self.stream, rows.tolist(), columns, self.cfg)
            for number, rankings in enumerate(all_rankings):
                shares = shares_of(self.task.columns[rows.to(self.task.columns.device)].cpu().numpy(), rankings)
                scores |= {f"{split}/{name}{BETWEEN}{number}": share for name, share in shares.items()}
        best = max(scores[f"dev/{ACTION.id}{BETWEEN}{number}"] for number in range(len(self.grid.probes)))
        return {SELECTED: best, **scores}


def part_loss(probe: nn.Module, tokens_BND: Tensor, columns_B3: Tensor) -> Tensor:
    """Return the loss of one trial on some clips, a scalar: the sum over clips, so that parts of a batch add up."""
    return probe_loss(probe(tokens_BND.float()), columns_B3)


@torch.no_grad()
def answers_of(
    probes: Sequence[nn.Module],
    stream: ClipStream,
    rows: Sequence[int],
    classes: Mapping[ActionPart, Codes],
    cfg: ProbeConfig,
) -> list[dict[ActionPart, Codes]]:
    """Return for each probe part -> (M, K) ranked classes of the clips `rows`, viewed as in the features.

    Args:
        probes: in evaluation mode; the tokens of a clip are computed once for all of them.
        stream: the clips.
        rows: numbers of clips in the stream.
        classes: part -> (C,) the class of each column.
        cfg: how many clips are predicted at once.
    """
    parts: list[list[dict[ActionPart, Codes]]] = [[] for _ in probes]
    views = [[stream.whole(row) for row in rows[at : at + cfg.batch]] for at in range(0, len(rows), cfg.batch)]
    for tokens_BND in stream.tokens(views):
        for at in range(0, len(tokens_BND), cfg.clips_at_once):
            some_BND = tokens_BND[at : at + cfg.clips_at_once].float()
            for number, probe in enumerate(probes):
                logits: dict[ActionPart, Tensor] = probe(some_BND)
                parts[number].append(
                    {name: ranked(scores.cpu().numpy(), classes[name]) for name, scores in logits.items()}
                )
    return [{name: np.concatenate([r[name] for r in rankings]) for name in PARTS} for rankings in parts]


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
        name: name of the training in the curves.
        seed: seed of weights, batches and views.
        task: clips and columns; its tokens are empty.
        cfg: the grid.
        stream: the clips of the task, in order.
        folder: folder of the checkpoint.
        device: device of the probes.
        epoch_done: called after each epoch.
        checkpoint_s: seconds between checkpoints.
    """
    trials = grid(cfg)
    full_fit = FullFit(ProbeGrid(task, cfg, seed).to(device), task, cfg, stream, seed)
    first = trials[0]
    training = Training(
        name=name,
        seed=seed,
        model=full_fit.grid,
        batches=full_fit.begin,
        loss=full_fit.loss,
        measure=full_fit.measure,
        selected=SELECTED,
        rate=cosine,
        decays_all=True,
        parts=[
            TrainedPart(probe, trial.rate / first.rate, trial.decay)
            for probe, trial in zip(full_fit.grid.probes, trials, strict=True)
        ],
    )
    fitted = fit(training, original_training(cfg, first), folder, device, epoch_done, checkpoint_s)
    return chosen_of(fitted, name, trials)


def chosen_of(fitted: FittedModel, name: str, trials: Sequence[Trial]) -> ChosenProbe:
    """Return the trial with the best score in the epoch that was kept, ties to the first, and the curves of all."""
    of_trial: list[list[CurvePoint]] = [[] for _ in trials]
    for point in fitted.curve:
        quantity, between, of = point.quantity.partition(BETWEEN)
        if between:
            of_trial[int(of)].append(point.replace(quantity=quantity))

    def score(number: int) -> float:
        """Return the dev score in the epoch that was kept."""
        wanted = (fitted.best_epoch, "dev", ACTION.id)
        return next(p.value for p in of_trial[number] if (p.epoch, p.split, p.quantity) == wanted)

    best = max(range(len(trials)), key=lambda number: (score(number), -number))
    curve = [*of_trial[best]]
    for number, trial in enumerate(trials):
        if number != best:
            curve += [point.replace(model=f"{name}, {trial.name}") for point in of_trial[number]]
    prefix = f"probes.{best}."
    weights = {key.removeprefix(prefix): value for key, value in fitted.state.items() if key.startswith(prefix)}
    return ChosenProbe(trials[best], weights, curve)
