"""What the scorer learns from: queries with their candidates, the utility's targets, and the losses.

Axes: N queries over all horizons, B queries of a batch, K candidates, M middle steps (padded to the longest horizon),
E text space, P width of a plan. Source: paper, appendix on the scorer; docs/decisions/paper-gaps.md (28 to 32);
docs/decisions/scorer.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.training import ScorerConfig
from trajpilot_core.memory import in_parts
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.scorer import GateThenRankScorer, ScorerInputs
from trajpilot_core.retrieval.bank import ChainView
from trajpilot_core.retrieval.candidates import Candidates, PlanScores, scores_of, truth_of, unknown_scores

NEVER = 2.0
"""Threshold that no gate probability reaches: the row is its fallback."""
RANKING_TIE_BREAK = 1e-3
"""Weight of the always-open M@1 in the score that selects an epoch."""


@dataclass(frozen=True)
class Queries:
    """Queries of the scorer with everything that it reads and is judged by.

    `middle` and `label` point into `latents` and `texts`, whose row 0 is zero: so K x M embeddings are not kept twice.
    The two tables are on the device of the models; what has a row per query may be elsewhere, as in mapped files.
    """

    latents: Tensor
    """(T, E) float32, trajectory latents of the chains' segments."""
    texts: Tensor
    """(1 + V, E) float32, a zero row and the label bank."""
    query: Tensor
    """(N, Q) float32."""
    fallback: Tensor
    """(N, M, P) float16."""
    plans: Tensor
    """(N, K, M, P) float16."""
    middle: Tensor
    """(N, K, M) long, row of `latents`."""
    label: Tensor
    """(N, K, M) long, row of `texts`."""
    valid: Tensor
    """(N, K) bool."""
    n_mids: Tensor
    """(N,) long."""
    take: Tensor
    """(N,) long."""
    utility: Tensor
    """(N, K) float32, -inf where there is no candidate."""
    fallback_utility: Tensor
    """(N,) float32."""
    m1: Tensor
    """(N, K) float32: share of middle steps that a candidate's plan gets right, 0 where there is none."""
    fallback_m1: Tensor
    """(N,) float32."""

    def __len__(self) -> int:
        return len(self.n_mids)


ROWS = tuple(field.name for field in fields(Queries) if field.name not in ("latents", "texts"))
"""Fields with one row per query."""


def queries_of(view: ChainView, candidates: Candidates, config: ScorerConfig, *, with_truth: bool = True) -> Queries:
    """Turn the candidates of B windows of one horizon into B queries.

    Without `with_truth` plans are not compared with the truth: their scores are NaN, which is enough for an answer.
    """
    data, truth_BM = view.data, truth_of(view.data, candidates.segments)
    missing = view.models.traj.shape.max_horizon - 2 - truth_BM.shape[1]
    fallback_BMP = candidates.fallback[:, 1:-1]
    candidate, fallback = unknown_scores(candidates.valid), unknown_scores(candidates.take)
    if with_truth:
        known = truth_BM, candidates.take, config.utility
        candidate = scores_of(view.readout, candidates.ends, candidates.plans, *known)
        alone = scores_of(view.readout, ends_of(candidates.fallback), fallback_BMP[:, None], *known)
        fallback = PlanScores(*(value[:, 0] for value in alone))
    mids_BKM, motion_BKM = candidates.pool[:, :, 1:-1], candidates.motion[:, :, 1:-1]
    there_BK1 = candidates.valid[:, :, None].long()
    return Queries(
        latents=view.latent_table,
        texts=view.label_table,
        query=_query_vectors(view, candidates.segments),
        fallback=F.pad(fallback_BMP, (0, 0, 0, missing)).half(),
        plans=F.pad(candidates.plans, (0, 0, 0, missing)).half(),
        middle=F.pad((motion_BKM + 1) * there_BK1, (0, missing)),
        label=F.pad((data.read_labels[mids_BKM] + 1) * there_BK1, (0, missing)),
        valid=candidates.valid,
        n_mids=torch.full_like(candidates.take, truth_BM.shape[1]),
        take=candidates.take,
        utility=candidate.utility.masked_fill(~candidates.valid, -torch.inf),
        fallback_utility=fallback.utility,
        m1=candidate.m1.masked_fill(~candidates.valid, 0.0),
        fallback_m1=fallback.m1,
    )


def joined(parts: Sequence[Queries]) -> Queries | None:
    """Put queries of single events of several chains together; None where there are none."""
    parts = [part for part in parts if len(part)]
    if not parts:
        return None
    moved, first = [], 0
    for part in parts:
        moved.append(replace(part, middle=torch.where(part.middle > 0, part.middle + first, 0)))
        first += len(part.latents)
    columns = {field.name: torch.cat([getattr(part, field.name) for part in moved]) for field in fields(Queries)}
    return Queries(**{**columns, "texts": parts[0].texts})


def _query_vectors(view: ChainView, segments_BH: Tensor) -> Tensor:
    """Return (B, Q): pooled Start and Goal features, standardised as traj does, and both endpoint latents (D 29).

    Of a view without a goal those of Start alone (D 33).
    """
    ends_Bn = view.given_ends(segments_BH)
    pooled = view.models.traj.standardise(view.data.features[ends_Bn].mean(2))
    return torch.cat([pooled.flatten(1), view.latents[ends_Bn].flatten(1)], dim=1)


def inputs_at(queries: Queries, rows: Tensor) -> ScorerInputs:
    """Gather what the scorer reads of the queries `rows`, (B,) long, on the device of their tables.

    Shapes: query (B, Q), fallback (B, M, P), plans (B, K, M, P), latents and labels (B, K, M, E), valid (B, K), n_mids
    (B,).
    """

    def gathered(value: Tensor) -> Tensor:
        return value[rows.to(value.device)].to(queries.latents.device)

    return ScorerInputs(
        query=gathered(queries.query),
        fallback=gathered(queries.fallback).float(),
        plans=gathered(queries.plans).float(),
        latents=queries.latents[gathered(queries.middle)],
        labels=queries.texts[gathered(queries.label)],
        valid=gathered(queries.valid),
        n_mids=gathered(queries.n_mids),
    )


def gate_targets(queries: Queries, margin: float) -> Tensor:
    """Return bool of shape (N,): the best candidate beats the fallback on utility by more than the margin (D 31)."""
    return queries.utility.amax(dim=1) > queries.fallback_utility + margin


def class_weights(positive_N: Tensor) -> tuple[float, float]:
    """Return weights of (positive, negative) targets (N,) that give each class half of the total; 1 if one is empty."""
    n, n_positive = len(positive_N), int(positive_N.sum())
    if n_positive in (0, n):
        return 1.0, 1.0
    return n / (2 * n_positive), n / (2 * (n - n_positive))


def scorer_loss(
    gate_B: Tensor,
    rank_BK: Tensor,
    utility_BK: Tensor,
    opens_B: Tensor,
    weights: tuple[float, float],
    config: ScorerConfig,
) -> Tensor:
    """Return the mean loss: balanced BCE of the gate, and on gate-positive rows CE to the best candidate and KL.

    Gate logits and bool gate targets are (B,); `weights` are those of positive and negative targets. Rank scores and
    utility are (B, K), -inf where there is no candidate.
    """
    weight_B = torch.where(opens_B, weights[0], weights[1])
    gate = F.binary_cross_entropy_with_logits(gate_B.float(), opens_B.float(), weight_B)
    # every row is computed and the others weigh nothing: to cut them out, the host would wait for their number
    rank_BK, utility_BK = (torch.where(opens_B[:, None], value, 0.0) for value in (rank_BK.float(), utility_BK))
    n_open = opens_B.sum().clamp_min(1)
    log_rank = rank_BK.log_softmax(dim=1)
    best = -(log_rank.gather(1, utility_BK.argmax(dim=1, keepdim=True))[:, 0] * opens_B).sum() / n_open
    log_teacher = (utility_BK / config.utility_temperature).log_softmax(dim=1)
    gap = (log_teacher - log_rank).masked_fill(utility_BK == -torch.inf, 0.0)
    spread = ((log_teacher.exp() * gap).sum(dim=1) * opens_B).sum() / n_open
    return config.loss_weights[0] * gate + config.loss_weights[1] * best + config.loss_weights[2] * spread


@torch.no_grad()
def decide(
    scorer: GateThenRankScorer, queries: Queries, batch: int, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the float32 gate probability and the long top-ranked candidate, shape (n,); ties by smaller place.

    They are on the device of the queries' takes. `rows` (n,), long, are the queries that are decided; None: all.
    """
    every = torch.arange(len(queries)) if rows is None else rows
    every = every.to(queries.take.device)

    def part(rows: slice) -> tuple[Tensor, Tensor]:
        inputs = inputs_at(queries, every[rows])
        gate_B, rank_BK = scorer(inputs)
        gate_B = torch.where(inputs.valid.any(1), gate_B.float().sigmoid(), 0.0)
        return gate_B, rank_BK.float().max(dim=1).indices

    parts = in_parts(len(every), batch, part)
    if not parts:
        return queries.query.new_zeros(0), queries.take[:0]
    gates, choices = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    return gates.to(queries.take.device), choices.to(queries.take.device)


def best_threshold(gate_N: Tensor, gain_N: Tensor, horizon_N: Tensor) -> float:
    """Return the threshold, one over all horizons, of the highest M@1 (plain mean over H); ties to the higher (D 29).

    `gate_N` is the probability of the gate, which opens where it reaches the threshold; `gain_N` is M@1 of the chosen
    candidate minus that of the fallback; `horizon_N` (long) groups windows that share one unit of weight.
    """
    if not len(gate_N):
        return NEVER
    _, which, count = torch.unique(horizon_N, return_inverse=True, return_counts=True)
    weighted = gain_N.double() / count[which].double()
    values, place = torch.unique(gate_N, return_inverse=True)
    gain_at = torch.zeros(len(values), dtype=torch.float64, device=gate_N.device).scatter_add_(0, place, weighted)
    total = gain_at.flip(0).cumsum(0)
    top = total.max(dim=0)
    if float(top.values) <= 1e-9:
        return NEVER
    first = int((total >= top.values - 1e-9).nonzero()[0, 0])
    return float(values.flip(0)[first])


def plain_mean(value_N: Tensor, horizon_N: Tensor) -> float:
    """Return the unweighted mean over horizons of each horizon's mean; 0 for no window; arguments of shape (N,)."""
    means = [value_N[horizon_N == horizon].double().mean() for horizon in torch.unique(horizon_N)]
    return float(torch.stack(means).mean()) if means else 0.0


def dev_scores(gate_N: Tensor, choice_N: Tensor, queries: Queries) -> dict[str, float]:
    """Return shares of one scorer on dev: its row at the best threshold, fallback, always open, open rate.

    `selection` picks the epoch: the row's M@1, and among equals (no threshold beats the fallback yet) the ranking.
    Gate probabilities and the candidate chosen for each query have the shape (N,).
    """
    choices = judged(choice_N, queries, torch.arange(len(queries)))
    return scores_at(best_threshold(gate_N, choices.chosen - choices.fallback, choices.n_mids), gate_N, choices)


class JudgedChoices(NamedTuple):
    """How right the choices of n queries are."""

    chosen: Tensor
    """(n,) M@1 of the chosen candidate, of the fallback where there is no candidate."""
    fallback: Tensor
    """(n,) M@1 of the fallback."""
    n_mids: Tensor
    """(n,) long."""


def judged(choice_N: Tensor, queries: Queries, rows: Tensor) -> JudgedChoices:
    """Look up how right the choices (n,) for the queries `rows`, (n,) long, are."""
    rows = rows.to(queries.take.device)
    fallback = queries.fallback_m1[rows]
    chosen = torch.where(queries.valid[rows].any(1), queries.m1[rows].gather(1, choice_N[:, None])[:, 0], fallback)
    return JudgedChoices(chosen, fallback, queries.n_mids[rows])


def scores_at(threshold: float, gate_N: Tensor, choices: JudgedChoices) -> dict[str, float]:
    """Return what `dev_scores` returns, at a given threshold; gate probabilities of shape (n,)."""
    opened = gate_N >= threshold
    row = plain_mean(torch.where(opened, choices.chosen, choices.fallback), choices.n_mids)
    always = plain_mean(choices.chosen, choices.n_mids)
    return {
        "M@1": row,
        "fallback M@1": plain_mean(choices.fallback, choices.n_mids),
        "always open M@1": always,
        "open rate": plain_mean(opened.float(), choices.n_mids),
        "threshold": threshold,
        "selection": row + RANKING_TIE_BREAK * always,
    }
