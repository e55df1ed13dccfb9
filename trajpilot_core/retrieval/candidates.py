"""Candidates of a query: retrieved middle trajectories, rolled out with the query's own endpoints.

Axes: B windows of one horizon H, M = H - 2 middle steps, K candidates, E text space, V labels, P width of a plan
(models/readout.py).
Source: paper, 3.5 and appendix on the scorer; docs/decisions/paper-gaps.md (25 to 30, 47).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from schemas.training import ScorerConfig
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.memory import in_parts
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.models.ranking import ranks_of
from trajpilot_core.models.readout import Readout
from trajpilot_core.retrieval.bank import Bank, ChainView, batches, endpoint_keys, no_traj_plans, retrieve

ROLL_OUT_PLANS = 2048
"""Plans in one call of the predictor."""


@dataclass(frozen=True)
class Candidates:
    """Fallback and candidate plans of B windows of one horizon, of width P."""

    horizon: int
    segments: Tensor
    take: Tensor
    """(B,) long."""
    key: Tensor
    """(B, 2 E) keys of the windows."""
    fallback: Tensor
    """Plans of no_traj."""
    ends: Tensor
    """Start and Goal as traj predicts them from the query's endpoints, the same for every candidate."""
    plans: Tensor
    """Middle steps that traj predicts under each candidate's trajectories; zero where there is no candidate."""
    pool: Tensor
    """Segments of the retrieved windows; 0 where there is none."""
    window: Tensor
    """Rows of the retrieved windows in their WindowSet, -1 where there is none."""
    cosine: Tensor
    """Endpoint cosine, -inf where there is no candidate."""
    motion: Tensor
    """Segments whose middle trajectories were rolled out: `pool`, except for permuted candidates; 0 for none."""

    @property
    def valid(self) -> Tensor:
        """Bool (B, K): true where a candidate exists."""
        return self.window >= 0


class PlanScores(NamedTuple):
    """Scores of plans against the truth on the middle steps (paper, appendix on the scorer; D 30)."""

    utility: Tensor
    """0.1 mean cosine + R@1 + 0.5 R@5 + exact sequence, with the weights of the configuration."""
    m1: Tensor
    """Share of middle steps where the truth ranks first, 0 to 1."""


def find_candidates(view: ChainView, bank: Bank, rows: Tensor, config: ScorerConfig) -> Candidates:
    """Retrieve and roll out the candidates of windows `rows` (B,), long, of the bank's horizon, as memory allows."""
    windows = view.data.windows[bank.horizon]
    segments_BH, take = windows.segments[rows], windows.take[rows]
    none_0HE = view.latents.new_zeros(0, segments_BH.shape[1], view.latents.shape[1])
    predicted_BHE = torch.cat([none_0HE, *(no_traj_plans(view, part) for part in batches(segments_BH))])
    keys = endpoint_keys(view, segments_BH, config.key, predicted_BHE)
    fallback = view.readout.plan(view.models.no_traj, predicted_BHE)
    nearest = retrieve(bank, keys, take, config.candidates)
    valid = nearest.index >= 0
    entry = nearest.index.clamp_min(0)
    some = len(bank.take) > 0
    pool_BKH = bank.segments[entry] if some else segments_BH[:, None].expand(*entry.shape, -1)
    window_BK = (bank.window[entry] if some else entry).masked_fill(~valid, -1)
    mids_BKME = view.latents[pool_BKH[:, :, 1:-1]] * valid[:, :, None, None]
    ends, plans = roll_out(view.models.traj, view, segments_BH, mids_BKME)
    plans = plans * valid[:, :, None, None]
    found = pool_BKH, window_BK, nearest.cosine, pool_BKH
    return Candidates(bank.horizon, segments_BH, take, keys, fallback, ends, plans, *found)


def permuted(view: ChainView, bank: Bank, candidates: Candidates, donors_N: Tensor) -> Candidates:
    """Give every candidate the middle trajectories of another bank window, and roll out again.

    Labels, cosines and windows are kept, so the parts of a candidate that a scorer reads no longer match. `donors_N`,
    (N,) long, has for each entry the one whose trajectories it gets, -1 for none.
    """
    if not len(bank.take):
        return candidates
    entry_BK = torch.searchsorted(bank.window, candidates.window.clamp_min(0)).clamp_max(len(bank.take) - 1)
    donor_BK = donors_N.to(entry_BK.device)[entry_BK]
    motion_BKH = bank.segments[donor_BK.clamp_min(0)]
    given_BK11 = (candidates.valid & (donor_BK >= 0))[:, :, None, None]
    mids_BKME = view.latents[motion_BKH[:, :, 1:-1]] * given_BK11
    ends, plans = roll_out(view.models.traj, view, candidates.segments, mids_BKME)
    return replace(candidates, ends=ends, plans=plans * candidates.valid[:, :, None, None], motion=motion_BKH)


@torch.inference_mode()
def roll_out(model: CausalPredictor, view: ChainView, segments_BH: Tensor, mids_BKME: Tensor) -> tuple[Tensor, Tensor]:
    """Predict under foreign middle trajectories and the windows' own endpoint trajectories.

    Returns:
        (B, 2, P) Start and Goal, which are blind to the middles, and (B, K, M, P) middle steps.
    """
    horizon, width = segments_BH.shape[1], view.readout.width(view.latents.shape[1])

    def part(rows: slice) -> tuple[Tensor, Tensor]:
        """Return ends (B, 2, P) and middle steps (B, K, M, P) of some windows."""
        segments = segments_BH[rows]
        start, latents = view.data.features[segments[:, 0]], view.latents[ends_of(segments)]
        out_BKHE = model.roll_out(start, view.goal_features(segments), latents, mids_BKME[rows], horizon)
        out_BKHP = view.readout.plan(model, out_BKHE)
        return ends_of(out_BKHP[:, 0]), out_BKHP[:, :, 1:-1]

    most = max(1, ROLL_OUT_PLANS // mids_BKME.shape[1])
    parts = in_parts(len(segments_BH), most, part)
    if not parts:
        return mids_BKME.new_zeros(0, 2, width), mids_BKME.new_zeros(*mids_BKME.shape[:3], width)
    return torch.cat([ends for ends, _ in parts]), torch.cat([plans for _, plans in parts])


def fallback_plans(view: ChainView, segments_BH: Tensor) -> Tensor:
    """Return (B, H, P): the plans of no_traj under null trajectories."""
    return view.readout.plan(view.models.no_traj, no_traj_plans(view, segments_BH))


def scores_of(
    readout: Readout,
    ends_B2P: Tensor,
    mids_BKMP: Tensor,
    truth_BM: Tensor,
    take_B: Tensor,
    weights: tuple[float, float, float, float],
) -> PlanScores:
    """Score K plans of each window against the truth, each score (B, K).

    `weights` are of the agreement (mean cosine, or log probability), R@1, R@5 and the exact sequence.
    """
    scores = readout.against(ends_B2P, mids_BKMP, truth_BM, take_B)
    agreement = readout.agreement(mids_BKMP, truth_BM)
    m1, m5 = (part.float().mean(-1) for part in (scores.right, scores.rank < 5))
    exact = scores.right.all(-1).float()
    return PlanScores(weights[0] * agreement + weights[1] * m1 + weights[2] * m5 + weights[3] * exact, m1)


def unknown_scores(like_x: Tensor) -> PlanScores:
    """Return unknown scores, NaN, of the shape of a tensor."""
    nan_x = torch.full_like(like_x, torch.nan, dtype=torch.float32)
    return PlanScores(nan_x, nan_x)


def truth_of(data: PlanningData, segments_BH: Tensor) -> Tensor:
    """Return the (B, M) long labels of the middle steps."""
    return data.labels[segments_BH[:, 1:-1]]


def pool_weights(cosine_BK: Tensor, temperature: float) -> Tensor:
    """Return (B, K) weights softmax(cos / T); all zero where a window has no candidate."""
    return torch.nan_to_num((cosine_BK / temperature).softmax(dim=1), nan=0.0)


def pool_mean(candidates: Candidates, temperature: float, readout: Readout) -> Tensor:
    """Return (B, M, P): the weighted mean of the candidate plans; the fallback where there is none.

    Source: docs/decisions/paper-gaps.md (29) and docs/decisions/scorer.md.
    """
    weights = pool_weights(candidates.cosine, temperature)
    mean_BMP = readout.mean(weights, candidates.plans)
    some_B11 = candidates.valid.any(1)[:, None, None]
    return torch.where(some_B11, mean_BMP, candidates.fallback[:, 1:-1])


def label_votes(candidates: Candidates, data: PlanningData, temperature: float) -> Tensor:
    """Return (B, H, V): for each position, the weight of the candidates that have each label there."""
    weights = pool_weights(candidates.cosine, temperature)
    labels_BHK = data.labels[candidates.pool].transpose(1, 2)
    votes = weights.new_zeros(*labels_BHK.shape[:2], len(data.bank))
    return votes.scatter_add_(2, labels_BHK, weights[:, None].expand_as(labels_BHK).contiguous())


def vote_m1(candidates: Candidates, data: PlanningData, temperature: float) -> Tensor:
    """Return (B,) M@1 of kNN-labels."""
    truth_BM = truth_of(data, candidates.segments)
    votes_BMV = label_votes(candidates, data, temperature)[:, 1:-1]
    return (ranks_of(votes_BMV.flatten(0, 1), truth_BM.flatten()) == 0).float().view(truth_BM.shape).mean(1)


def mean_m1(candidates: Candidates, view: ChainView, temperature: float) -> Tensor:
    """Return (B,) M@1 of Pool-Mean."""
    mean_BKMP = pool_mean(candidates, temperature, view.readout)[:, None]
    truth_BM = truth_of(view.data, candidates.segments)
    right_BKM = view.readout.against(candidates.ends, mean_BKMP, truth_BM, candidates.take).right
    return right_BKM[:, 0].float().mean(1)
