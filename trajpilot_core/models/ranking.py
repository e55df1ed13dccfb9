"""From embeddings to labels: exact ranks and the best five, ties by smaller label index.

Axes: V labels of the bank, E text space. Source: paper, 3.3 (prediction by cosine against the bank).
"""

import torch
from torch import Tensor

LOGIT_CHUNK = 1 << 25
"""Logits held at once."""


def truth_ranks(plan_xE: Tensor, truth_x: Tensor, bank_VE: Tensor) -> Tensor:
    """Return how many labels stand before the true one, long, of the shape of `truth_x`.

    Args:
        plan_xE: (..., E) predicted embeddings; leading axes may be broadcast against `truth_x`.
        truth_x: (...) long, label indices.
        bank_VE: (V, E) label embeddings.
    """
    truth = truth_x.expand(plan_xE.shape[:-1]).reshape(-1)
    flat_RE = plan_xE.reshape(-1, plan_xE.shape[-1])
    step = max(1, LOGIT_CHUNK // bank_VE.shape[0])
    ranks = [ranks_of(flat_RE[r : r + step] @ bank_VE.T, truth[r : r + step]) for r in range(0, flat_RE.shape[0], step)]
    return torch.cat(ranks).reshape(plan_xE.shape[:-1]) if ranks else truth.reshape(plan_xE.shape[:-1])


def ranks_of(scores_RV: Tensor, truth_R: Tensor) -> Tensor:
    """Return (R,) long: labels with a higher score than the truth, or an equal one and a smaller index."""
    own_R1 = scores_RV.gather(1, truth_R[:, None])
    before = (scores_RV > own_R1).sum(1)
    smaller = torch.arange(scores_RV.shape[1], device=scores_RV.device) < truth_R[:, None]
    return before + ((scores_RV == own_R1) & smaller).sum(1)


def best(scores_RV: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return (R, n) label indices and scores, descending, ties by smaller index; n is cut at V."""
    n = min(n, scores_RV.shape[1])
    top = scores_RV.topk(min(n + 1, scores_RV.shape[1]), dim=1)
    ids, values = top.indices[:, :n], top.values[:, :n]
    tied_R = (top.values[:, 1:] == top.values[:, :-1]).any(1)  # `topk` promises no order of equal values
    if bool(tied_R.any()):
        ids[tied_R], values[tied_R] = _best_in_turn(scores_RV[tied_R], n)
    return ids, values


def _best_in_turn(scores_RV: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return what `best` does, by n searches for the highest score."""
    left = scores_RV.clone()
    ids, values = [], []
    for _ in range(n):
        top = left.max(dim=1)  # the first of equal values, as torch.max promises
        ids.append(top.indices)
        values.append(top.values)
        left.scatter_(1, top.indices[:, None], -torch.inf)
    return torch.stack(ids, 1), torch.stack(values, 1)


def best_labels(plan_RE: Tensor, bank_VE: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Return the `n` nearest labels of (R, E) embeddings, (R, n) indices and cosines; see `best`."""
    step = max(1, LOGIT_CHUNK // bank_VE.shape[0])
    parts = [best(plan_RE[r : r + step] @ bank_VE.T, n) for r in range(0, plan_RE.shape[0], step)]
    return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts])
