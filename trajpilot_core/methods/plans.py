"""Ranked labels of plans, and the plans that several rows share.

Axes: B windows of one horizon H, N all of them, M middle steps, R ranked answers, P width of a plan.
Source: paper, 4 and its appendix; docs/decisions/paper-gaps.md (15, 29, 40, 47).
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from trajpilot_core.methods.base import RANKED, Answers
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.retrieval.bank import ChainView
from trajpilot_core.retrieval.candidates import Candidates, roll_out


def rank_plan(plan_BHP: Tensor, view: ChainView, segments_BH: Tensor) -> Answers:
    """Rank the labels of every step of the windows' plans (models/readout.py)."""
    ranked = view.readout.ranked(plan_BHP, view.data.segment_take[segments_BH[:, 0]], RANKED)
    kind: Literal["cosine", "probability"] = "cosine" if ranked.decoded is None else "probability"
    return Answers(ranked.ids, ranked.scores, decoded=ranked.decoded, kind=kind)


def joined(parts: Sequence[Answers]) -> Answers:
    """Join the answers of one row to parts of the windows: rankings by probability, all with a sequence or none."""
    ids, scores = torch.cat([part.ids for part in parts]), torch.cat([part.scores for part in parts])
    decoded = [part.decoded for part in parts if part.decoded is not None]
    return Answers(ids, scores, decoded=torch.cat(decoded) if decoded else None, kind="probability")


@torch.inference_mode()
def own_plan(view: ChainView, model: CausalPredictor, segments_BH: Tensor, with_mids: bool) -> Tensor:
    """Return (B, H, P): the plan under the windows' own endpoint trajectories, with or without their middles."""
    latents = view.latents[segments_BH].clone()
    if not with_mids:
        latents[:, 1:-1] = 0
    start = view.data.features[segments_BH[:, 0]]
    predicted = model(start, view.goal_features(segments_BH), latents, segments_BH.shape[1])
    return view.readout.plan(model, predicted)


def with_ends(candidates: Candidates, plan_BMP: Tensor) -> Tensor:
    """Put (B, M, P) middles between the ends that traj predicts; the whole fallback where there is no candidate."""
    whole = torch.cat([candidates.ends[:, :1], plan_BMP, candidates.ends[:, 1:]], dim=1)
    return torch.where(candidates.valid.any(1)[:, None, None], whole, candidates.fallback)


def shuffled_plan(view: ChainView, segments_BH: Tensor, donors_BM: Tensor) -> Tensor:
    """Return (B, H, P): traj under the windows' own endpoints and their donors' middles; null without a donor."""
    mids = view.latents[donors_BM.clamp_min(0)] * (donors_BM >= 0)[:, :, None]
    ends, plans = roll_out(view.models.traj, view, segments_BH, mids[:, None])
    return torch.cat([ends[:, :1], plans[:, 0], ends[:, 1:]], dim=1)


def derangement(n: int, seed: int) -> Tensor:
    """Return long of shape (n,) without a fixed point, one random cycle; -1 everywhere for n < 2 (D 40), on the CPU."""
    if n < 2:
        return torch.full((n,), -1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    donors = torch.empty(n, dtype=torch.long)
    donors[order] = order.roll(1)
    return donors


def donors_of(segments_NH: Tensor, seed: int, shuffle: int) -> Tensor:
    """Return (N, M) long: the middle segments of each window's donor, by seed, shuffle and H alone; -1 for none."""
    n, horizon = segments_NH.shape
    donors = derangement(n, 1_000_003 * seed + 101 * shuffle + horizon).to(segments_NH.device)
    mids = segments_NH[donors.clamp_min(0)][:, 1:-1]
    return mids.masked_fill(donors[:, None] < 0, -1)
