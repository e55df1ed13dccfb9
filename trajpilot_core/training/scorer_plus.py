"""What Scorer+ learns from: queries by chain and horizon, its loss, its answers, and its scores on dev.

Shapes: B queries of one horizon H, N all of them, V labels. Source: docs/decisions/scorer-plus.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from trajpilot_core.models.scorer_plus import AnsweringRoles, PlusInputs, ScorerPlus, TrainingStatistics
from trajpilot_core.retrieval.candidates import Candidates
from trajpilot_core.training.scorer import best_threshold, plain_mean
from trajpilot_core.training.scorer_plus_statistics import PlusSource, plus_inputs
from trajpilot_core.training.train_sample import train_sample

BATCH = 256


class QueryGroup(NamedTuple):
    """Queries that are read together: of one chain and one horizon."""

    chain: str
    horizon: int


@dataclass(frozen=True)
class PlusQueries:
    """N queries of one part."""

    inputs: PlusInputs
    labels: Tensor
    """(N, H) long, the truth."""
    fallback: Tensor
    """(N, H) long, the labels that no_traj answers."""

    def __len__(self) -> int:
        return len(self.labels)


def plus_queries(source: PlusSource, found: Candidates) -> PlusQueries:
    """Return the queries of B windows of one horizon."""
    data = source.view.data
    return PlusQueries(
        plus_inputs(source, found), data.labels[found.segments], (found.fallback @ data.bank.T).max(dim=-1).indices
    )


def queries_at(queries: PlusQueries, rows: Tensor, device: torch.device) -> PlusQueries:
    """Gather some queries on a device, `rows` long of shape (B,), their inputs as float32."""

    def gathered(value: Tensor) -> Tensor:
        """Return the rows (B, ...) of a tensor (N, ...)."""
        return value[rows.to(value.device)].to(device)

    inputs = PlusInputs(*(gathered(value).float() for value in queries.inputs))
    return PlusQueries(inputs, gathered(queries.labels), gathered(queries.fallback))


def plus_on_device(queries: PlusQueries, device: str) -> PlusQueries:
    """Return the same queries with everything on `device`."""
    inputs = PlusInputs(*(value.to(device) for value in queries.inputs))
    return PlusQueries(inputs, queries.labels.to(device), queries.fallback.to(device))


def plus_loss(scorer: ScorerPlus, queries: PlusQueries, rows: Tensor, statistics: TrainingStatistics) -> Tensor:
    """Return the mean over queries and middle steps of -log p(true label), a scalar; `rows` long of shape (B,)."""
    read = queries_at(queries, rows, statistics.bank.device)
    probability_BHV: Tensor = scorer(read.inputs, statistics)
    own_BM = probability_BHV.gather(2, read.labels[:, :, None])[:, 1:-1, 0]
    return -own_BM.clamp_min(1e-9).log().mean()


@dataclass(frozen=True)
class PlusAnswers:
    """What Scorer+ says about B queries of one horizon before its gate."""

    probability: Tensor
    """(B, H, V)."""
    decoded: Tensor
    """(B, H) long."""
    gain: Tensor
    """(B,) expected M@1 of the most probable labels minus that of the fallback's, by the probabilities."""


@torch.inference_mode()
def plus_answers(
    scorer: ScorerPlus, queries: PlusQueries, known: AnsweringRoles, asked: Tensor | None = None
) -> Iterator[PlusAnswers]:
    """Yield the answers to N queries in parts of at most BATCH.

    Args:
        scorer: what answers.
        queries: N queries of one horizon.
        known: what the scorer makes of its statistics.
        asked: (n,) long, the queries that are answered; None: all.
    """
    every = torch.arange(len(queries)) if asked is None else asked
    for rows in torch.split(every.to(queries.labels.device), BATCH):
        read = queries_at(queries, rows, known.roles.statistics.bank.device)
        probability_BHV, decoded_BH = scorer.answer(read.inputs, known)
        best_BM = probability_BHV[:, 1:-1].amax(-1)
        of_fallback_BM = probability_BHV.gather(2, read.fallback[:, :, None])[:, 1:-1, 0]
        yield PlusAnswers(probability_BHV, decoded_BH, (best_BM - of_fallback_BM).mean(1))


def plus_dev_scores(
    scorer: ScorerPlus, queries: Mapping[QueryGroup, PlusQueries], statistics: TrainingStatistics
) -> dict[str, float]:
    """Return shares of Scorer+ on dev: its row at the best threshold, fallback, always open, and log likelihood."""
    value = _columns(scorer, queries, statistics, {part: torch.arange(len(held)) for part, held in queries.items()})
    threshold = best_threshold(value["gain"], value["M@1"] - value["fallback M@1"], value["horizon"])
    return {"threshold": threshold, **_shares(value, threshold)}


def plus_train_scores(
    scorer: ScorerPlus,
    queries: Mapping[QueryGroup, PlusQueries],
    statistics: TrainingStatistics,
    sample: Mapping[QueryGroup, Tensor],
    threshold: float,
) -> dict[str, float]:
    """Return the shares that `plus_dev_scores` returns, of some learned queries of one chain at a given threshold.

    Args:
        scorer: what is measured.
        queries: those that it learns from.
        statistics: of the chain of the sample.
        sample: group -> (n,) long, rows of its queries.
        threshold: as dev chose it.
    """
    return _shares(_columns(scorer, queries, statistics, sample), threshold)


def plus_sample(
    train: Mapping[QueryGroup, PlusQueries], dev: Mapping[QueryGroup, PlusQueries], seed: int
) -> dict[QueryGroup, Tensor]:
    """Return group -> (n,) long, learned queries that are scored: of one chain, per horizon as many as dev at most.

    The roles of the labels are computed once for each chain: those of one chain, the first, cost what they cost on dev.
    """
    first = min(part.chain for part in train)
    n_dev = {QueryGroup(first, part.horizon): len(held) for part, held in dev.items()}
    return train_sample({part: len(held) for part, held in train.items() if part.chain == first}, n_dev, seed)


def _columns(
    scorer: ScorerPlus,
    queries: Mapping[QueryGroup, PlusQueries],
    statistics: TrainingStatistics,
    asked: Mapping[QueryGroup, Tensor],
) -> dict[str, Tensor]:
    """Answer the rows (n,), long, of each group; return columns over all of them, each of shape (N,)."""
    columns: dict[str, list[Tensor]] = {}
    with torch.inference_mode():
        known = scorer.answering(statistics)
    for part, asked_N in asked.items():
        held, at = queries[part], 0
        for answers in plus_answers(scorer, held, known, asked_N):
            rows = asked_N[at : at + len(answers.gain)].to(held.labels.device)
            at += len(rows)
            labels, fallback = (value[rows].to(answers.gain.device) for value in (held.labels, held.fallback))
            for name, column in _dev_columns(answers, labels, fallback, part.horizon).items():
                columns.setdefault(name, []).append(column)
    return {name: torch.cat(parts) for name, parts in columns.items()}


def _shares(value: Mapping[str, Tensor], threshold: float) -> dict[str, float]:
    """Return plain means over the horizons of columns (N,): the row at a threshold, and its parts."""
    horizon_N = value["horizon"]
    opened = value["gain"] >= threshold
    row = {m: torch.where(opened, value[m], value[f"fallback {m}"]) for m in ("M@1", "MSeq")}
    shown = {**row, "open rate": opened.float(), "always open M@1": value["M@1"], "always open MSeq": value["MSeq"]}
    shown |= {name: value[name] for name in ("fallback M@1", "log likelihood")}
    return {name: plain_mean(column, horizon_N) for name, column in shown.items()}


def _dev_columns(answers: PlusAnswers, labels_BH: Tensor, fallback_BH: Tensor, horizon: int) -> dict[str, Tensor]:
    """Return columns of shape (B,), from which the scores on dev are averaged."""
    truth_BM = labels_BH[:, 1:-1]
    first_BM, decoded_BM = answers.probability[:, 1:-1].max(dim=-1).indices, answers.decoded[:, 1:-1]
    own_BM = answers.probability.gather(2, labels_BH[:, :, None])[:, 1:-1, 0]
    fallback_right_BM = fallback_BH[:, 1:-1] == truth_BM
    return {
        "gain": answers.gain,
        "M@1": (first_BM == truth_BM).float().mean(1),
        "MSeq": (decoded_BM == truth_BM).all(1).float(),
        "fallback M@1": fallback_right_BM.float().mean(1),
        "fallback MSeq": fallback_right_BM.all(1).float(),
        "log likelihood": own_BM.clamp_min(1e-9).log().mean(1),
        "horizon": torch.full_like(truth_BM[:, 0], horizon),
    }
