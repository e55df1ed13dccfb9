"""Candidates of a query: retrieved middle trajectories, rolled out with the query's own endpoints.

Axes: B windows of one horizon H, M = H - 2 middle steps, K candidates, E text space, V labels.
Source: paper, 3.5 and appendix on the scorer; docs/decisions/paper-gaps.md (25 to 30, 47).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from schemas.training import ScorerConfig
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.memory import in_parts
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.models.ranking import truth_ranks
from trajpilot_core.retrieval.bank import (
    Bank,
    ChainView,
    batches,
    endpoint_keys,
    many_plans,
    no_traj_plans,
    person_codes,
    retrieve,
)

ROLL_OUT_PLANS = 2048
"""Plans in one call of the predictor."""


@dataclass(frozen=True)
class Candidates:
    """Fallback and candidate plans of B windows of one horizon."""

    horizon: int
    segments: Tensor
    take: Tensor
    """(B,) long."""
    fallback: Tensor
    """What no_traj predicts."""
    ends: Tensor
    """Start and Goal as traj predicts them from the query's endpoints; no candidate changes them."""
    plans: Tensor
    """Middle steps that traj predicts under each candidate's trajectories; zero where there is no candidate."""
    pool: Tensor
    """Segments of the retrieved windows; 0 where there is none."""
    window: Tensor
    """Rows of the retrieved windows in their WindowSet, -1 where there is none."""
    cosine: Tensor
    """Endpoint cosine, -inf where there is no candidate."""
    motion: Tensor
    """Segments whose middle trajectories were rolled out: those of `pool`, but for permuted candidates; 0 for none."""

    @property
    def valid(self) -> Tensor:
        """Bool (B, K): true where a candidate exists."""
        return self.window >= 0


class PlanScores(NamedTuple):
    """How well plans meet the truth on the middle steps (paper, appendix on the scorer; D 30)."""

    utility: Tensor
    """0.1 mean cosine + R@1 + 0.5 R@5 + exact sequence, with the weights of the configuration."""
    m1: Tensor
    """Share of middle steps whose truth ranks first, 0 to 1."""
    exact: Tensor
    """1 where it does so at all of them, else 0."""


def find_candidates(view: ChainView, bank: Bank, rows: Tensor, config: ScorerConfig) -> Candidates:
    """Retrieve and roll out the candidates of windows of the bank's horizon, in parts that fit the memory.

    Args:
        view: the chain.
        bank: entries of the windows' horizon.
        rows: long, shape (B,), rows of the windows in their WindowSet.
        config: K, the key, and how to search.
    """
    windows = view.data.windows[bank.horizon]
    segments_BH, take = windows.segments[rows], windows.take[rows]
    fallback = _concat([no_traj_plans(view, part) for part in batches(segments_BH)], segments_BH, view)
    keys = endpoint_keys(view, segments_BH, config.key, fallback)
    found = retrieve(bank, keys, take, person_codes(view.data)[take], config)
    valid = found.index >= 0
    entry = found.index.clamp_min(0)
    some = len(bank.take) > 0
    pool_BKH = bank.segments[entry] if some else segments_BH[:, None].expand(*entry.shape, -1)
    window_BK = (bank.window[entry] if some else entry).masked_fill(~valid, -1)
    mids_BKME = view.latents[pool_BKH[:, :, 1:-1]] * valid[:, :, None, None]
    with many_plans(view):
        ends, plans = roll_out(view.models.traj, view, segments_BH, mids_BKME)
    plans = plans * valid[:, :, None, None]
    return Candidates(
        bank.horizon, segments_BH, take, fallback, ends, plans, pool_BKH, window_BK, found.cosine, motion=pool_BKH
    )


def permuted(view: ChainView, bank: Bank, found: Candidates, donors_N: Tensor) -> Candidates:
    """Give every candidate the middle trajectories of another bank window, and roll out again.

    Labels, cosines and windows stay; so what a scorer reads of a candidate no longer belongs together.

    Args:
        view: the chain.
        bank: that the candidates come from, N entries.
        found: the candidates.
        donors_N: long, shape (N,), the entry whose trajectories an entry gets, -1 for none.
    """
    if not len(bank.take):
        return found
    entry_BK = torch.searchsorted(bank.window, found.window.clamp_min(0)).clamp_max(len(bank.take) - 1)
    donor_BK = donors_N.to(entry_BK.device)[entry_BK]
    motion_BKH = bank.segments[donor_BK.clamp_min(0)]
    given_BK11 = (found.valid & (donor_BK >= 0))[:, :, None, None]
    mids_BKME = view.latents[motion_BKH[:, :, 1:-1]] * given_BK11
    with many_plans(view):
        ends, plans = roll_out(view.models.traj, view, found.segments, mids_BKME)
    return replace(found, ends=ends, plans=plans * found.valid[:, :, None, None], motion=motion_BKH)


@torch.inference_mode()
def roll_out(model: CausalPredictor, view: ChainView, segments_BH: Tensor, mids_BKME: Tensor) -> tuple[Tensor, Tensor]:
    """Predict under foreign middle trajectories and the windows' own endpoint trajectories.

    Returns:
        (B, 2, E) Start and Goal, which are blind to the middles, and (B, K, M, E) middle steps, unit norm.
    """
    horizon, width = segments_BH.shape[1], view.latents.shape[1]

    def part(rows: slice) -> tuple[Tensor, Tensor]:
        """Return ends (B, 2, E) and middle steps (B, K, M, E) of some windows."""
        segments = segments_BH[rows]
        first, last = segments[:, 0], segments[:, -1]
        features, own = view.data.features, view.latents[ends_of(segments)]
        out_BKHE = model.roll_out(features[first], features[last], own, mids_BKME[rows], horizon)
        return ends_of(out_BKHE[:, 0]), out_BKHE[:, :, 1:-1]

    what = f"{mids_BKME.shape[1]} candidates of one window do not fit into the memory of {segments_BH.device}"
    most = max(1, ROLL_OUT_PLANS // mids_BKME.shape[1])
    parts = in_parts(len(segments_BH), most, part, what, "lower scorer.candidates, or choose another device")
    if not parts:
        return mids_BKME.new_zeros(0, 2, width), mids_BKME
    return torch.cat([ends for ends, _ in parts]), torch.cat([plans for _, plans in parts])


def _concat(parts: list[Tensor], segments_BH: Tensor, view: ChainView) -> Tensor:
    """Join (b, H, E) parts; (0, H, E) for none."""
    return torch.cat(parts) if parts else view.latents.new_zeros(*segments_BH.shape, view.latents.shape[1])


def scores_of(
    plan_xME: Tensor, truth_xM: Tensor, bank_VE: Tensor, weights: tuple[float, float, float, float]
) -> PlanScores:
    """Score plans against the truth.

    Args:
        plan_xME: (..., M, E) predicted middle steps, unit norm.
        truth_xM: (..., M) long, label indices; broadcast against the plans.
        bank_VE: (V, E) label embeddings, unit norm.
        weights: of mean cosine, R@1, R@5 and the exact sequence.
    """
    truth = truth_xM.expand(plan_xME.shape[:-1])
    rank = truth_ranks(plan_xME, truth, bank_VE)
    cosine = (plan_xME * bank_VE[truth]).sum(-1).mean(-1)
    m1, m5 = (rank == 0).float().mean(-1), (rank < 5).float().mean(-1)
    exact = (rank == 0).all(-1).float()
    return PlanScores(weights[0] * cosine + weights[1] * m1 + weights[2] * m5 + weights[3] * exact, m1, exact)


def unknown_scores(like_x: Tensor) -> PlanScores:
    """Return scores that are not known: NaN, of a shape."""
    nan_x = torch.full_like(like_x, torch.nan, dtype=torch.float32)
    return PlanScores(nan_x, nan_x, nan_x)


def truth_of(data: PlanningData, segments_BH: Tensor) -> Tensor:
    """Return the (B, M) long labels of the middle steps."""
    return data.labels[segments_BH[:, 1:-1]]


def pool_weights(cosine_BK: Tensor, temperature: float) -> Tensor:
    """Return (B, K) weights softmax(cos / T); all zero where a window has no candidate."""
    return torch.nan_to_num((cosine_BK / temperature).softmax(dim=1), nan=0.0)


def pool_mean(found: Candidates, temperature: float) -> Tensor:
    """Return (B, M, E): the weighted mean of the candidate plans, unit norm; the fallback where there is none.

    Source: docs/decisions/paper-gaps.md (29) and docs/decisions/scorer.md.
    """
    weights = pool_weights(found.cosine, temperature)
    mean_BME = F.normalize(torch.einsum("bk,bkme->bme", weights, found.plans), dim=-1)
    some_B11 = found.valid.any(1)[:, None, None]
    return torch.where(some_B11, mean_BME, found.fallback[:, 1:-1])


def label_votes(found: Candidates, data: PlanningData, temperature: float) -> Tensor:
    """Return (B, H, V): for each position, the weight of the candidates that have each label there."""
    weights = pool_weights(found.cosine, temperature)
    labels_BHK = data.labels[found.pool].transpose(1, 2)
    votes = weights.new_zeros(*labels_BHK.shape[:2], len(data.bank))
    return votes.scatter_add_(2, labels_BHK, weights[:, None].expand_as(labels_BHK).contiguous())
