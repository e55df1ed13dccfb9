"""Decoding on a closed vocabulary, and what planners share: their sizes, the parts of a loss, PDPP's task classifier.

The score of a sequence is the sum of its labels' scores, plus a weight times the log probabilities of its transitions.
Seen pairs are listed and all other pairs of a row share a floor, so that a step costs B x (N + V) instead of B x V^2.
Everything is computed in logarithms and float64, because probabilities of long sequences underflow.

Shapes: B windows, H steps, V labels, N pairs of labels that were seen.
Source: Rabiner, Proc. IEEE 77 (1989), for the recursions; D 35 of docs/decisions/paper-gaps.md for the score.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from trajpilot_core.errors import InputError
from trajpilot_core.models.blocks import DataSizes
from trajpilot_core.models.ranking import rows_at_once


class TransitionPrior(NamedTuple):
    """log P(label | label before it): `floor`, except for the listed pairs, which are above it."""

    before: Tensor
    """(N,) long."""
    after: Tensor
    """(N,) long."""
    seen: Tensor
    """(N,) float64, log probability of each listed pair, at least the floor of `before`."""
    floor: Tensor
    """(V,) float64, log probability of each other pair after a label; -inf: impossible."""

    def weighted(self, weight: float) -> "TransitionPrior":
        """Return the prior with all logarithms multiplied by `weight`, which is above 0."""
        return self._replace(seen=weight * self.seen, floor=weight * self.floor)


def smoothed_prior(counts_VV: Tensor, smoothing: float) -> TransitionPrior:
    """Return log((n + s) / (N + s V)) of counts, dense or sparse, of the column's label after the row's.

    Without smoothing (s = 0) unseen pairs are impossible, and so is every label after a label without counts.
    """
    before_N, after_N, count_N = _pairs(counts_VV)
    total_V = _row_sums(before_N, count_N, len(counts_VV)) + smoothing * len(counts_VV)
    log_total_V = total_V.log()
    floor_V = math.log(smoothing) - log_total_V if smoothing > 0 else torch.full_like(total_V, -torch.inf)
    return TransitionPrior(before_N, after_N, (count_N + smoothing).log() - log_total_V[before_N], floor_V)


def clamped_prior(counts_VV: Tensor, least: float = 1e-10) -> TransitionPrior:
    """Return shares of each row, clamped to at least `least` and normalised again; rows without counts become uniform.

    Counts, dense or sparse, are those of the column's label after the row's, and `least` is above 0.
    Source: ViterbiPlanNet (github.com/Gigi-G/ViterbiPlanNet, 47a698b), its differentiable layer.
    """
    before_N, after_N, count_N = _pairs(counts_VV)
    n_labels = len(counts_VV)
    share_N = (count_N / _row_sums(before_N, count_N, n_labels)[before_N]).clamp_min(least)
    n_unseen_V = n_labels - _row_sums(before_N, torch.ones_like(count_N), n_labels)
    log_total_V = (_row_sums(before_N, share_N, n_labels) + least * n_unseen_V).log()
    return TransitionPrior(before_N, after_N, share_N.log() - log_total_V[before_N], math.log(least) - log_total_V)


def _pairs(counts_VV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return row, column and count of every pair with a count above 0, each (N,)."""
    entries = counts_VV.to_sparse().coalesce()
    count_N = entries.values().double()
    is_seen_N = count_N > 0
    before_N, after_N = entries.indices()[:, is_seen_N]
    return before_N, after_N, count_N[is_seen_N]


def _row_sums(row_N: Tensor, values_N: Tensor, n_rows: int) -> Tensor:
    return values_N.new_zeros(n_rows).index_add_(0, row_N, values_N)


def log_scores(logits_BHV: Tensor, allowed_BV: Tensor | None = None) -> Tensor:
    """Return (B, H, V) float64: log softmax of logits over the allowed labels (bool) of a window; None: all.

    Raises InputError: a window has no allowed label.
    """
    if allowed_BV is not None:
        for at in (~allowed_BV.any(1)).nonzero()[:1, 0].tolist():
            raise InputError(
                f"window {at}: its mask allows none of the {allowed_BV.shape[1]} "
                "labels; give its scenario the labels that it has in training, or set is_masked=False"
            )
        logits_BHV = logits_BHV.masked_fill(~allowed_BV[:, None], -torch.inf)
    return logits_BHV.double().log_softmax(2)


def marginals(log_score_BHV: Tensor, prior: TransitionPrior, weight: float) -> Tensor:
    """Return (B, H, V) float64: the posterior of every step's label, by forward and backward recursion.

    Args:
        log_score_BHV: score of every label at every step, -inf if it is not allowed.
        weight: factor of its logarithms, at least 0; 0: every step is independent and nothing is impossible.

    Raises InputError: no sequence of a window is possible.
    """
    if weight == 0:
        return log_score_BHV.double().log_softmax(2).exp()
    moves = prior.weighted(weight)
    excess_N = moves.seen + (-(moves.floor[moves.before] - moves.seen).clamp_max(0.0).exp()).log1p()
    parts = []
    for at, score_HVB in _parts(log_score_BHV, prior):
        forward = [score_HVB[0]]
        for score_VB in score_HVB[1:]:
            # every pair contributes the floor, a seen one its excess above it: all terms are positive, nothing cancels
            by_floor = (forward[-1] + moves.floor[:, None]).logsumexp(0, keepdim=True)
            seen_NB = forward[-1][moves.before] + excess_N[:, None]
            forward.append(score_VB + torch.logaddexp(by_floor, _log_sums(seen_NB, moves.after, score_VB)))
        _require_a_sequence(forward[-1], at)
        backward_VB, out = torch.zeros_like(forward[0]), [forward[-1]]
        for t in range(len(forward) - 2, -1, -1):
            value_VB = backward_VB + score_HVB[t + 1]
            by_floor = moves.floor[:, None] + value_VB.logsumexp(0, keepdim=True)
            seen_NB = value_VB[moves.after] + excess_N[:, None]
            backward_VB = torch.logaddexp(by_floor, _log_sums(seen_NB, moves.before, value_VB))
            out.append(forward[t] + backward_VB)
        parts.append(torch.stack(out[::-1]).log_softmax(1).permute(2, 0, 1))
    return torch.cat(parts).exp()


def _parts(log_score_BHV: Tensor, prior: TransitionPrior) -> Iterator[tuple[int, Tensor]]:
    """Split the windows so that scores of all pairs fit into memory: first window, and (H, V, B) float64."""
    n = rows_at_once(len(prior.before) + len(prior.floor), log_score_BHV.device)
    for at in range(0, max(1, len(log_score_BHV)), n):
        yield at, log_score_BHV[at : at + n].double().permute(1, 2, 0).contiguous()


def _log_sums(values_NB: Tensor, to_N: Tensor, like_VB: Tensor) -> Tensor:
    """Return (V, B): log of the sum of exp(values) by label, each sum scaled by its own largest term."""
    top_VB = _largest(values_NB, to_N, torch.full_like(like_VB, -torch.inf))
    base_VB = top_VB.masked_fill(top_VB == -torch.inf, 0.0)
    at_NB = to_N[:, None].expand_as(values_NB)
    sums_VB = torch.zeros_like(like_VB).scatter_add_(0, at_NB, (values_NB - base_VB[to_N]).exp())
    return sums_VB.log() + base_VB


def _largest(values_NB: Tensor, to_N: Tensor, least_VB: Tensor) -> Tensor:
    """Return (V, B): the largest value of each label, at least `least_VB`, which is overwritten."""
    return least_VB.scatter_reduce_(0, to_N[:, None].expand_as(values_NB), values_NB, "amax")


def viterbi(log_score_BHV: Tensor, prior: TransitionPrior, weight: float = 1.0) -> Tensor:
    """Return (B, H) long: the sequence of the highest score.

    Ties go to the sequence with the smallest last label, then the smallest label before it, and so on. The best path to
    a label comes from its listed predecessors or from the floors of all labels; listed pairs can stay in the latter,
    since a floor never exceeds them. Predecessors are looked up afterwards, for the labels of the sequence only.

    Arguments and errors are those of `marginals`.
    """
    if weight == 0:
        return log_score_BHV.argmax(2)  # the first of equal scores, as torch guarantees
    moves = prior.weighted(weight)
    order_N = moves.after.argsort()
    moves = TransitionPrior(moves.before[order_N], moves.after[order_N], moves.seen[order_N], moves.floor)
    parts = []
    for at, score_HVB in _parts(log_score_BHV, prior):
        best = [score_HVB[0]]
        for score_VB in score_HVB[1:]:
            by_floor_VB = (best[-1] + moves.floor[:, None]).amax(0).repeat(len(score_VB), 1)
            best.append(score_VB + _largest(best[-1][moves.before] + moves.seen[:, None], moves.after, by_floor_VB))
        _require_a_sequence(best[-1], at)
        labels = [best[-1].argmax(0)]
        for best_VB in best[-2::-1]:
            first_B, behind_B = (torch.searchsorted(moves.after, labels[-1], right=right) for right in (False, True))
            n_B = behind_B - first_B
            row_X = torch.arange(len(n_B), device=n_B.device).repeat_interleave(n_B)
            pair_X = torch.arange(len(row_X), device=n_B.device) + (behind_B - n_B.cumsum(0))[row_X]
            into_BV = moves.floor.repeat(len(n_B), 1)  # log probabilities from every label to the label after it
            into_BV[row_X, moves.before[pair_X]] = moves.seen[pair_X]
            labels.append((best_VB.T + into_BV).argmax(1))
        parts.append(torch.stack(labels[::-1], dim=1))
    return torch.cat(parts)


def _require_a_sequence(last_VB: Tensor, first: int) -> None:
    """Check by the scores of the last step that each window, numbered from `first`, has a possible sequence."""
    for at in (last_VB == -torch.inf).all(0).nonzero()[:1, 0].tolist():
        raise InputError(
            f"window {first + at}: every sequence of its labels has a transition of probability 0; set smoothing above "
            "0, or weight=0 to decode every step independently"
        )


@dataclass(frozen=True)
class PlannerShape(DataSizes):
    """Sizes that follow from the data."""

    feature_width: int
    text_width: int
    actions: int
    tasks: int


class TaskClassifier(nn.Module):
    """Narrow, widen and narrow each feature, average the two, and predict the task.

    Its prediction is an input of planning. Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a), train_mlp.py.
    Shapes: B windows, D feature width (at least 3), K tasks. There is no non-linearity between the first two layers:
    together they are one map of rank D / 3, as in the original.
    """

    def __init__(self, features: int, tasks: int) -> None:
        super().__init__()
        narrow, wide = features // 3, features * 4
        self.narrow_in, self.widen = nn.Linear(features, narrow), nn.Linear(narrow, wide)
        self.narrow_out, self.readout = nn.Linear(wide, narrow), nn.Linear(narrow, tasks)
        for layer in (self.narrow_in, self.widen, self.narrow_out, self.readout):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, features_B2D: Tensor) -> Tensor:
        """Return logits (B, K)."""
        hidden_B2N = F.relu(self.narrow_out(F.relu(self.widen(self.narrow_in(features_B2D)))))
        logits: Tensor = self.readout(hidden_B2N.mean(dim=1))
        return logits
