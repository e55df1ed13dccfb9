"""Fitting Scorer+ on the queries of every chain; the epoch and the threshold are chosen on dev.

Source: docs/decisions/scorer-plus.md.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.base import Record
from schemas.results import CurvePoint
from schemas.training import ScorerPlusConfig
from trajpilot_core.engine.progress import Progress
from trajpilot_core.models.scorer_plus import ScorerPlus, TrainingStatistics
from trajpilot_core.training.loop import Training, fit, index_batches, seeded
from trajpilot_core.training.scorer import NEVER
from trajpilot_core.training.scorer_plus import (
    PlusQueries,
    QueryGroup,
    plus_dev_scores,
    plus_loss,
    plus_sample,
    plus_train_scores,
)

FINAL = "final"
NAME = "final/scorer_plus"


class PlusDecision(Record):
    """What was chosen on dev for one seed, and what dev said."""

    threshold: float
    """A window opens where its expected gain reaches this; above 1: never."""
    n_queries: int
    n_dev: int
    dev: dict[str, float]
    """Shares on dev, 0 to 1, of the epoch that was kept; empty without dev windows or without queries."""


class FittedPlus(NamedTuple):
    """One Scorer+ and its curve."""

    state: dict[str, Tensor]
    decision: PlusDecision
    curve: list[CurvePoint]


class PlusData(NamedTuple):
    """What Scorer+ of one seed learns from."""

    statistics: Mapping[str, TrainingStatistics]
    """Chain -> what its takes know; dev is read with that of `final`."""
    train: Mapping[QueryGroup, PlusQueries]
    dev: Mapping[QueryGroup, PlusQueries]


def fit_plus(
    data: PlusData,
    config: ScorerPlusConfig,
    seed: int,
    scratch: Path,
    device: str,
    progress: Progress,
    checkpoint_s: float = 0.0,
) -> FittedPlus:
    """Train the weights of Scorer+; without queries they stay as they begin and its gate never opens.

    Args:
        data: queries of every chain, dev queries of the final one.
        config: initial weights and training.
        seed: of the batches.
        scratch: folder of the checkpoint.
        device: where the tensors lie.
        progress: called with (done, total, what).
        checkpoint_s: seconds between checkpoints; 0: one after every epoch.
    """
    n_queries, n_dev = (sum(len(q) for q in queries.values()) for queries in (data.train, data.dev))
    with seeded(seed):
        scorer = ScorerPlus(config).to(device)
    if not n_queries:
        state = {name: value.detach().cpu().clone() for name, value in scorer.state_dict().items()}
        none = PlusDecision(threshold=NEVER, n_queries=0, n_dev=n_dev, dev={})
        return FittedPlus(state, none, [])

    training = Training(
        name=NAME,
        seed=seed,
        model=scorer,
        selected="dev/log likelihood",
        measure=measurer(scorer, data, seed),
        batches=lambda generator: _batches(data.train, config.train.batch, generator),
        loss=lambda batch: plus_loss(scorer, data.train[batch[0]], batch[1], data.statistics[batch[0].chain]),
    )
    fitted = fit(training, config.train, scratch, device, progress, checkpoint_s)
    kept = {p.quantity: p.value for p in fitted.curve if p.epoch == fitted.best_epoch and p.split == "dev"}
    decision = PlusDecision(
        threshold=kept.get("threshold", NEVER),
        n_queries=n_queries,
        n_dev=n_dev,
        dev={name: value for name, value in kept.items() if name != "threshold"} if n_dev else {},
    )
    return FittedPlus(fitted.state, decision, fitted.curve)


def measurer(scorer: ScorerPlus, data: PlusData, seed: int) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: the scores on dev, and on learned queries under the threshold that dev chose.

    Args:
        scorer: what is measured.
        data: what it learns from, and dev; without dev queries nothing is measured.
        seed: draws the learned queries that are scored (`plus_sample`).
    """
    if not any(len(held) for held in data.dev.values()):
        return lambda: {"dev/log likelihood": 0.0}
    sample = plus_sample(data.train, data.dev, seed)

    def measure() -> dict[str, float]:
        of_dev = plus_dev_scores(scorer, data.dev, data.statistics[FINAL])
        found = {f"dev/{name}": value for name, value in of_dev.items()}
        if sample:
            own = data.statistics[min(sample).chain]
            scores = plus_train_scores(scorer, data.train, own, sample, of_dev["threshold"])
            found |= {f"train/{name}": value for name, value in scores.items()}
        return found

    return measure


def _batches(
    queries: Mapping[QueryGroup, PlusQueries], batch: int, generator: torch.Generator
) -> list[tuple[QueryGroup, Tensor]]:
    """Return one epoch: every query once, in batches of one part and (B,) long rows, in random order."""
    found = []
    for part, held in queries.items():
        found += [(part, rows) for rows in index_batches(len(held), batch, generator, held.labels.device)]
    return [found[i] for i in torch.randperm(len(found), generator=generator).tolist()]
