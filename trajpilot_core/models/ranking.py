"""From embeddings to labels: exact ranks and the best five, ties by smaller label index.

Axes: V labels of the bank, E text space. Source: paper, 3.3 (prediction by cosine against the bank).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

LOGIT_CHUNK = 1 << 25
"""Logits in memory at once on a GPU."""
CACHED_CHUNK = 1 << 22
"""Logits in memory at once on a CPU: few enough for its caches."""


def rows_at_once(n_labels: int, device: torch.device) -> int:
    """Return for how many embeddings, or steps, the scores of all labels are in memory at once."""
    chunk = CACHED_CHUNK if device.type == "cpu" else LOGIT_CHUNK
    return max(1, chunk // max(1, n_labels))


class LabelBank(NamedTuple):
    """The labels that predicted embeddings are compared with, or their classes."""

    label: Tensor
    """(V, E) unit-norm embeddings of labels."""
    class_of: Tensor | None = None
    """(V,) long, the class of each label, every class from 0 to C - 1; None: labels are the answers."""

    def scores(self, plan_xE: Tensor) -> Tensor:
        """Return the cosines of embeddings (..., E) with every answer; for a class, that of its nearest label."""
        score_xV = plan_xE @ self.label.T
        if self.class_of is None:
            return score_xV
        lowest_xC = score_xV.new_full((*score_xV.shape[:-1], int(self.class_of.max()) + 1), -torch.inf)
        return lowest_xC.scatter_reduce(-1, self.class_of.expand_as(score_xV), score_xV, "amax")


def truth_ranks(plan_xE: Tensor, truth_x: Tensor, bank: LabelBank) -> Tensor:
    """Return how many answers rank before the true ones, long (...), for predicted embeddings (..., E); their leading
    axes may be broadcast."""
    return _of_truth(plan_xE, truth_x, bank, ranks_of)


def truth_scores(plan_xE: Tensor, truth_x: Tensor, bank: LabelBank) -> Tensor:
    """Return the cosine of the true answer, of the shape of `truth_x`; arguments as in `truth_ranks`."""
    return _of_truth(plan_xE, truth_x, bank, lambda scores_RV, truth_R: scores_RV.gather(1, truth_R[:, None])[:, 0])


def _of_truth(plan_xE: Tensor, truth_x: Tensor, bank: LabelBank, read: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Apply `read` to the scores (R, V) of all answers and the true ones (R,), some embeddings at a time."""
    truth = truth_x.expand(plan_xE.shape[:-1]).reshape(-1)
    flat_RE = plan_xE.reshape(-1, plan_xE.shape[-1])
    step = rows_at_once(len(bank.label), bank.label.device)
    parts = zip(torch.split(flat_RE, step), torch.split(truth, step), strict=True)
    return torch.cat([read(bank.scores(plan), true) for plan, true in parts]).reshape(plan_xE.shape[:-1])


def ranks_of(scores_RV: Tensor, truth_R: Tensor) -> Tensor:
    """Return (R,) long: labels with a higher score than the truth, or an equal one and a smaller index."""
    true_R1 = scores_RV.gather(1, truth_R[:, None])
    # comparisons are written and summed as float32, exact below 2^24 labels: a sum of bools takes ten times as long
    met_RV = torch.empty_like(scores_RV, dtype=torch.float32)
    ranks_R = torch.gt(scores_RV, true_R1, out=met_RV).sum(1).long()
    tied_R = torch.ge(scores_RV, true_R1, out=met_RV).sum(1).long() - ranks_R > 1
    if bool(tied_R.any()):
        smaller = torch.arange(scores_RV.shape[1], device=scores_RV.device) < truth_R[tied_R, None]
        ranks_R[tied_R] += ((scores_RV[tied_R] == true_R1[tied_R]) & smaller).sum(1)
    return ranks_R


def best(scores_xV: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return (..., R) label indices and scores, descending, ties by smaller index; R is n, or V where that is less."""
    scores_RV = scores_xV.flatten(0, -2)
    n = min(n, scores_RV.shape[1])
    top = scores_RV.topk(min(n + 1, scores_RV.shape[1]), dim=1)
    ids, values = top.indices[:, :n], top.values[:, :n]
    tied_R = (top.values[:, 1:] == top.values[:, :-1]).any(1)  # `topk` guarantees no order of equal values
    if bool(tied_R.any()):
        left_RV, parts = scores_RV[tied_R], []
        for _ in range(n):
            parts.append(left_RV.max(dim=1))  # the first of equal values, as torch.max guarantees
            left_RV.scatter_(1, parts[-1].indices[:, None], -torch.inf)
        ids[tied_R] = torch.stack([part.indices for part in parts], 1)
        values[tied_R] = torch.stack([part.values for part in parts], 1)
    shape = (*scores_xV.shape[:-1], n)
    return ids.view(shape), values.view(shape)


def best_labels(plan_RE: Tensor, bank: LabelBank, n: int) -> tuple[Tensor, Tensor]:
    """Return the `n` nearest answers of (R, E) embeddings, (R, n) indices and cosines, some at a time; see `best`."""
    step = rows_at_once(len(bank.label), bank.label.device)
    parts = [best(bank.scores(plan), n) for plan in torch.split(plan_RE, step)]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
