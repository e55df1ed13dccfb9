"""Fit attentive probes on every patch of clips that are encoded again in every epoch, all probes side by side.

The tokens of a batch are computed once for all probes, because encoding is most of the work. Probes share no parameter
and no gradient, so each one trains as it would alone. Source: docs/decisions/epic-probe.md.

Shapes: M clips, B clips of a batch, N tokens, D width, K ranked classes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from schemas.events import ProbeConfig
from schemas.results import CurvePoint
from trajpilot_core.arrays import Codes
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.metrics.epic_kitchens import ACTION, PARTS, ActionPart
from trajpilot_core.models.attentive_probe import probe_loss
from trajpilot_core.training.checkpoint import TrainingProgress
from trajpilot_core.training.clip_stream import ClipStream
from trajpilot_core.training.dev_scores import row_measure
from trajpilot_core.training.fit_probe import (
    ORIGINAL,
    PROBE,
    SELECTED,
    ChosenProbe,
    ProbeTask,
    Trial,
    answers,
    original_training,
    shares_of,
)
from trajpilot_core.training.loop import TrainedPart, Training, fit, index_batches, seeded

BETWEEN = " of probe "
"""Separates a quantity from the number of its probe in the curve of the whole training."""


class GridProbe(NamedTuple):
    """A probe that is trained next to others."""

    name: str
    """Name of its training; dev chooses among the probes of one name."""
    trial: Trial
    build: Callable[[], nn.Module]
    """Build it from the global random state."""
    more: tuple[Tensor, ...] = ()
    """(M, ...) further inputs of each clip."""


class ProbeGrid(nn.Module):
    """Probes side by side, each built from the same random state."""

    def __init__(self, members: Sequence[GridProbe], seed: int) -> None:
        super().__init__()
        self.probes = nn.ModuleList()
        for member in members:
            with seeded(seed):
                self.probes.append(member.build())


@dataclass
class FullFit:
    """The training of probes side by side."""

    grid: ProbeGrid
    members: Sequence[GridProbe]
    task: ProbeTask
    cfg: ProbeConfig
    stream: ClipStream
    """The clips of the task."""
    seed: int
    pending: Iterator[Tensor] = field(default_factory=lambda: iter(()))
    """Tokens of the batches of this epoch that have not been used yet."""
    losses: list[Tensor] = field(default_factory=list)
    """Loss of each probe, (probes,), in the batches of this epoch so far."""

    def begin(self, generator: torch.Generator) -> list[Tensor]:
        """Sample the batches and views of an epoch, and start to decode them."""
        fitted = self.task.splits()["train"].cpu()
        batches = [fitted[rows] for rows in index_batches(len(fitted), self.cfg.batch, generator)]
        views = [[self.stream.sampled(row, self.cfg, generator) for row in rows.tolist()] for rows in batches]
        self.pending, self.losses = self.stream.tokens(views), []
        return batches

    def loss(self, rows_B: Tensor) -> Tensor:
        """Return the sum of the losses of all probes, a scalar.

        Memory holds the activations of one probe and a few clips at a time.
        """
        tokens_BND, columns_B3 = next(self.pending), self.task.columns[rows_B.to(self.task.columns.device)]
        losses = []
        for probe, member in zip(self.grid.probes, self.members, strict=True):
            inputs = (columns_B3, tokens_BND, *(values[rows_B].to(tokens_BND.device) for values in member.more))
            parts = zip(*(torch.split(values, self.cfg.clips_at_once) for values in inputs), strict=True)
            # activations are recomputed for the gradients, part by part
            of_parts = [checkpoint(part_loss, probe, *part, use_reentrant=False) for part in parts]
            losses.append(torch.stack(of_parts).sum())
        self.losses.append(torch.stack(losses).detach())
        return torch.stack(losses).sum()

    def measure(self) -> dict[str, float]:
        """Return every metric of every probe on dev and on as many fitted clips, and the best of dev."""
        self.pending = iter(())  # stops the decoders of the epoch
        losses = torch.stack(self.losses).mean(0).tolist() if self.losses else []
        scores = {f"train/loss{BETWEEN}{number}": float(loss) for number, loss in enumerate(losses)}
        more, columns = [member.more for member in self.members], self.task.column_numbers()

        def shares(rows: Tensor) -> dict[str, float]:
            true = self.task.columns[rows].cpu().numpy()
            rankings = answers_of(list(self.grid.probes), self.stream, rows.tolist(), columns, self.cfg, more)
            of_probes = enumerate(shares_of(true, of_probe) for of_probe in rankings)
            return {f"{name}{BETWEEN}{number}": share for number, all_ in of_probes for name, share in all_.items()}

        scores |= row_measure(self.task.splits(), self.seed, shares)()
        best = max(scores[f"dev/{ACTION.id}{BETWEEN}{number}"] for number in range(len(self.members)))
        return {SELECTED: best, **scores}


def part_loss(probe: nn.Module, columns_B3: Tensor, *inputs: Tensor) -> Tensor:
    """Return the loss of one probe on some clips, a scalar: the sum over clips, so that parts of a batch add up."""
    return probe_loss(probe(*(values.float() for values in inputs)), columns_B3)


@torch.no_grad()
def answers_of(
    probes: Sequence[nn.Module],
    stream: ClipStream,
    rows: Sequence[int],
    classes: Mapping[ActionPart, Codes],
    cfg: ProbeConfig,
    more: Sequence[tuple[Tensor, ...]] = (),
) -> list[dict[ActionPart, Codes]]:
    """Return for each probe part -> (m, K) ranked classes of the m clips `rows`, viewed as in the features.

    Args:
        probes: in evaluation mode; the tokens of a clip are computed once for all of them.
        classes: part -> (C,) the class of each column.
        more: of each probe, further inputs (M, ...) of all clips of the stream; empty: none has any.
    """
    parts: list[list[dict[ActionPart, Codes]]] = [[] for _ in probes]
    batches = [list(rows[at : at + cfg.batch]) for at in range(0, len(rows), cfg.batch)]
    encoded = stream.tokens([[stream.whole(row) for row in batch] for batch in batches])
    for batch, tokens_BND in zip(batches, encoded, strict=True):
        for number, probe in enumerate(probes):
            inputs = (values[batch] for values in (more[number] if more else ()))
            parts[number].append(answers(probe, tokens_BND, classes, *inputs, at_once=cfg.clips_at_once))
    return [{name: np.concatenate([r[name] for r in rankings]) for name in PARTS} for rankings in parts]


def fit_side_by_side(
    members: Sequence[GridProbe],
    seed: int,
    task: ProbeTask,
    cfg: ProbeConfig,
    stream: ClipStream,
    runtime: Runtime,
    *,
    keeps_last: bool = False,
) -> dict[str, ChosenProbe]:
    """Fit probes side by side; return for each name the one with the best dev score in the epoch that is kept.

    `keeps_last` keeps the last epoch, so that no name chooses the epoch of another; else it is the best one on dev. The
    scratch of `runtime` is private to this training.
    """
    grid, names = ProbeGrid(members, seed).to(runtime.device), dict.fromkeys(member.name for member in members)
    own, first = FullFit(grid, members, task, cfg, stream, seed), members[0].trial
    training = Training(
        name=next(iter(names)) if len(names) == 1 else PROBE,
        seed=seed,
        model=grid,
        cfg=original_training(cfg, first),
        batches=own.begin,
        loss=own.loss,
        measure=own.measure,
        keeps_last=keeps_last,
        **ORIGINAL,
        parts=[
            TrainedPart(probe, member.trial.rate / first.rate, member.trial.decay)
            for probe, member in zip(grid.probes, members, strict=True)
        ],
    )
    fitted = fit(training, runtime.scratch, runtime.device, runtime.progress, runtime.checkpoint_s)
    return {name: chosen_of(fitted, name, members) for name in names}


def chosen_of(fitted: TrainingProgress, name: str, members: Sequence[GridProbe]) -> ChosenProbe:
    """Return the probe of a name with the best score in the epoch that was kept, ties to the first, and all curves."""
    numbers = [number for number, member in enumerate(members) if member.name == name]
    curves = {number: list[CurvePoint]() for number in numbers}
    for point in fitted.curve:
        quantity, between, of = point.quantity.partition(BETWEEN)
        if between and int(of) in curves:
            curves[int(of)].append(point.replace(quantity=quantity, model=name))
    wanted = (fitted.best_epoch, "dev", ACTION.id)
    scores = {n: p.value for n in numbers for p in curves[n] if (p.epoch, p.split, p.quantity) == wanted}
    best = max(numbers, key=lambda number: (scores[number], -number))
    curve = [*curves[best]]
    for number in numbers:
        if number != best:
            curve += [point.replace(model=f"{name}, {members[number].trial.name}") for point in curves[number]]
    prefix = f"probes.{best}."
    weights = {key.removeprefix(prefix): value for key, value in fitted.best.items() if key.startswith(prefix)}
    return ChosenProbe(members[best].trial, weights, curve)
