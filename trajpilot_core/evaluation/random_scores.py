"""Scores of random choices, one per draw: middle trajectories of other windows, samples of a diffusion.

Shapes: N windows of one horizon H, M = H - 2 middle steps. Source: docs/decisions/paper-gaps.md, D 40;
docs/decisions/planners.md.
"""

import torch
from torch import Tensor

from schemas.config import EvaluationConfig
from schemas.results import SamplingScore, ShuffleScore
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.methods.planner_models import PlannerRows, planned
from trajpilot_core.methods.planners import PDPP
from trajpilot_core.methods.plans import donors_of, shuffled_plan
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.retrieval.bank import ChainView, batches
from trajpilot_core.retrieval.candidates import truth_of
from trajpilot_core.training.fit_planners import AT_ONCE


def shuffle_scores(view: ChainView, segments_NH: Tensor, seed: int, config: EvaluationConfig) -> list[ShuffleScore]:
    """Score every derangement of the middle trajectories of one horizon's (N, H) windows."""
    truth = truth_of(view.data, segments_NH)
    scores = []
    for shuffle in range(config.shuffles):
        plan = shuffled_plan(view, segments_NH, donors_of(segments_NH, config.seed, shuffle))
        take = view.data.segment_take[segments_NH[:, 0]]
        right_NM = view.readout.against(ends_of(plan), plan[:, None, 1:-1], truth, take).right[:, 0]
        m1, mseq = accuracies(right_NM)
        horizon, n_windows = segments_NH.shape[1], len(segments_NH)
        scores.append(ShuffleScore(seed=seed, shuffle=shuffle, horizon=horizon, m1=m1, mseq=mseq, n_windows=n_windows))
    return scores


def sampling_scores(planners: PlannerRows | None, data: PlanningData, segments_NH: Tensor) -> list[SamplingScore]:
    """Score every sampling of PDPP's plans of one horizon's (N, H) windows; none without PDPP."""
    if planners is None or PDPP.id not in planners.of_method:
        return []
    truth_NM = truth_of(data, segments_NH)
    scores = []
    for sampling in range(planners.tables.config.samplings):
        parts = batches(segments_NH, AT_ONCE)
        plans = [planned(planners, PDPP.id, data, part, sampling=sampling) for part in parts]
        decoded_NH = torch.cat([plan.decoded for plan in plans if plan is not None])
        m1, mseq = accuracies(decoded_NH[:, 1:-1] == truth_NM)
        scores.append(
            SamplingScore(
                variant=PDPP.id,
                seed=planners.seed,
                sampling=sampling,
                horizon=segments_NH.shape[1],
                m1=m1,
                mseq=mseq,
                n_windows=len(segments_NH),
            )
        )
    return scores


def accuracies(right_NM: Tensor) -> tuple[float, float]:
    """Return M@1 and MSeq in percent of (N, M) bool, the middle steps that are right."""
    return 100 * float(right_NM.double().mean()), 100 * float(right_NM.all(1).double().mean())
