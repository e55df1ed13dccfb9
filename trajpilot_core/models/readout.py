"""From predictions of every step to labels.

A plan is the stored form of a prediction: for the open vocabulary the predicted embeddings, which are compared with the
label bank; for a class head the log probabilities of the labels, which are decoded together under a transition prior.

Axes: B windows of one horizon H, K candidate plans of each, M = H - 2 middle steps, E text space, V labels, P width of
a plan (E, or V with a class head), R ranked answers. Source: paper, 3.3, 3.5 and the appendix on closed vocabularies;
docs/decisions/closed-vocabulary.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from trajpilot_core.models.planners.decoding import TransitionPrior, log_scores, marginals, viterbi
from trajpilot_core.models.predictor import CausalPredictor
from trajpilot_core.models.ranking import LabelBank, best, best_labels, ranks_of, truth_ranks, truth_scores

DECODED_AT_ONCE = 1 << 22
"""Scores of labels that are decoded at once."""


class RankedPlan(NamedTuple):
    """Labels of every step."""

    ids: Tensor
    """(B, H, R) long, descending, ties by smaller index."""
    scores: Tensor
    """(B, H, R) float32: cosines, or probabilities."""
    decoded: Tensor | None
    """(B, H) long, the decoded sequence; None: the best label of each step."""


class PlanTruth(NamedTuple):
    """Candidate plans, compared with the true middle steps."""

    rank: Tensor
    """(B, K, M) long, labels that rank before the true one."""
    right: Tensor
    """(B, K, M) bool, the decoded label is the true one."""


@dataclass(frozen=True)
class CosineReadout:
    """The open vocabulary: labels by the cosine of their embedding with the predicted one."""

    bank: LabelBank

    def plan(self, model: CausalPredictor, predicted_xE: Tensor) -> Tensor:
        """Return the embeddings (..., E) unchanged."""
        return predicted_xE

    def width(self, text_width: int) -> int:
        """Return E."""
        return text_width

    def with_takes(self, n_takes: int) -> "CosineReadout":
        """Return itself: it does not depend on takes."""
        return self

    def scores(self, plan_xP: Tensor) -> Tensor:
        """Return (..., V) cosines."""
        return self.bank.scores(plan_xP)

    def ranked(self, plan_BHP: Tensor, take_B: Tensor, n: int) -> RankedPlan:
        """Rank the labels of every step independently, without masks. (B, H, R)."""
        ids, scores = best_labels(plan_BHP.flatten(0, 1), self.bank, n)
        shape = (*plan_BHP.shape[:2], ids.shape[1])
        return RankedPlan(ids.view(shape), scores.view(shape), None)

    def against(self, ends_B2P: Tensor, mids_BKMP: Tensor, truth_BM: Tensor, take_B: Tensor) -> PlanTruth:
        """Compare each middle step independently with its true label; (B, K, M)."""
        rank_BKM = truth_ranks(mids_BKMP, truth_BM[:, None].expand(mids_BKMP.shape[:-1]), self.bank)
        return PlanTruth(rank_BKM, rank_BKM == 0)

    def agreement(self, mids_BKMP: Tensor, truth_BM: Tensor) -> Tensor:
        """Return (B, K), mean cosines."""
        if self.bank.class_of is None:
            return (mids_BKMP * self.bank.label[truth_BM][:, None]).sum(-1).mean(-1)
        return truth_scores(mids_BKMP, truth_BM[:, None].expand(mids_BKMP.shape[:-1]), self.bank).mean(-1)

    def mean(self, weight_BK: Tensor, mids_BKMP: Tensor) -> Tensor:
        """Return (B, M, E), the mean embedding, unit norm."""
        return F.normalize(torch.einsum("bk,bkmp->bmp", weight_BK, mids_BKMP), dim=-1)


@dataclass(frozen=True)
class ClassReadout:
    """A closed vocabulary: log probabilities of a class head, decoded together under a transition prior (D 35)."""

    prior: TransitionPrior
    weight: float
    """w, factor of the log probabilities of transitions; 0: every step independently."""
    temperature: float
    """Temperature of the class scores."""
    allowed: Tensor | None = None
    """(takes, V) bool, labels of each take's scenario; None: no mask."""

    def plan(self, model: CausalPredictor, predicted_xE: Tensor) -> Tensor:
        """Return (..., V) log probabilities under the model's class head."""
        return (model.class_logits(predicted_xE) / self.temperature).log_softmax(dim=-1)

    def width(self, text_width: int) -> int:
        """Return V."""
        return len(self.prior.floor)

    def with_takes(self, n_takes: int) -> "ClassReadout":
        """Return the same for more takes, with every label allowed."""
        if self.allowed is None:
            return self
        more = self.allowed.new_ones(n_takes - len(self.allowed), self.allowed.shape[1])
        return replace(self, allowed=torch.cat([self.allowed, more]))

    def scores(self, plan_xP: Tensor) -> Tensor:
        """Return the log probabilities (..., V) unchanged."""
        return plan_xP

    def ranked(self, plan_BHP: Tensor, take_B: Tensor, n: int) -> RankedPlan:
        """Rank by the exact posterior of every step; the sequence is the most probable one. (B, H, R), (B, H)."""
        ranked = []
        for plan, take in self._parts(plan_BHP, take_B):
            posterior_BHV, decoded_BH = self._decoded(plan, take)
            ranked.append((*best(posterior_BHV, n), decoded_BH))
        ids, scores, decoded = (torch.cat(parts) for parts in zip(*ranked, strict=True))
        return RankedPlan(ids, scores, decoded)

    def against(self, ends_B2P: Tensor, mids_BKMP: Tensor, truth_BM: Tensor, take_B: Tensor) -> PlanTruth:
        """Compare the decoded middle steps of every whole plan with the true labels; (B, K, M)."""
        n, candidates = mids_BKMP.shape[:2]
        start_BK1P, goal_BK1P = (end[:, None, None].expand(-1, candidates, -1, -1) for end in ends_B2P.unbind(1))
        plan_NHP = torch.cat([start_BK1P, mids_BKMP, goal_BK1P], dim=2).flatten(0, 1)
        truth_NM = truth_BM.repeat_interleave(candidates, dim=0)
        ranks, rights = [], []
        for plan, take, truth in self._parts(plan_NHP, take_B.repeat_interleave(candidates), truth_NM):
            posterior_BHV, decoded_BH = self._decoded(plan, take)
            ranks.append(ranks_of(posterior_BHV[:, 1:-1].flatten(0, 1), truth.flatten()).view(truth.shape))
            rights.append(decoded_BH[:, 1:-1] == truth)
        shape = (n, candidates, truth_BM.shape[1])
        return PlanTruth(torch.cat(ranks).view(shape), torch.cat(rights).view(shape))

    def agreement(self, mids_BKMP: Tensor, truth_BM: Tensor) -> Tensor:
        """Return (B, K), mean log probabilities."""
        truth_BKM1 = truth_BM[:, None, :, None].expand(*mids_BKMP.shape[:3], 1)
        return mids_BKMP.gather(3, truth_BKM1)[..., 0].mean(-1)

    def mean(self, weight_BK: Tensor, mids_BKMP: Tensor) -> Tensor:
        """Return (B, M, V), the logarithm of the mean probabilities; 0 counts as the smallest positive number."""
        mean_BMV = torch.einsum("bk,bkmp->bmp", weight_BK, mids_BKMP.exp())
        return mean_BMV.clamp_min(torch.finfo(mean_BMV.dtype).tiny).log()

    def _decoded(self, plan_BHP: Tensor, take_B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the posterior (B, H, V) float32 and the best sequence (B, H) long, of allowed labels."""
        score_BHV = log_scores(plan_BHP, None if self.allowed is None else self.allowed[take_B])
        posterior_BHV = marginals(score_BHV, self.prior, self.weight).float()
        return posterior_BHV, viterbi(score_BHV, self.prior, self.weight)

    def _parts(self, plan_BHP: Tensor, *of_windows: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """Split plans and other (B, ...) values of their windows into parts whose scores fit into memory."""
        most = max(1, DECODED_AT_ONCE // plan_BHP.shape[1:].numel())
        return zip(*(torch.split(values, most) for values in (plan_BHP, *of_windows)), strict=True)


Readout: TypeAlias = CosineReadout | ClassReadout
"""Turns plans into labels."""
