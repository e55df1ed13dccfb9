"""Losses as pure functions.

Shapes: B batch, E text width, H horizon, U distinct ids of a batch (more on a GPU, see `numbered`).
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_TEMPERATURE = 100.0
"""Largest factor on the cosines (docs/decisions/paper-gaps.md, D 11)."""


def alignment_loss(
    z_BE: Tensor,
    target_BE: Tensor,
    ids_B: Tensor,
    log_temperature: Tensor,
    n_ids: int | None = None,
    counted_B: Tensor | None = None,
) -> Tensor:
    """Return the symmetric multi-positive cross-entropy of (B, E) unit vectors; equal ids are positives (paper, 3.3).

    Both directions average -[log sum over the positives of exp(l) - log sum over all of exp(l)]. Rows of one id have
    one target, so each distinct target is compared once and counted as often as it stands there.

    Args:
        z_BE: predictions, unit norm.
        target_BE: frozen text embeddings, unit norm; rows of equal ids must be equal (one vector per label, D 23).
        ids_B: (B,) long, the text id of each row.
        log_temperature: scalar, log of the factor on the cosines, at most log 100 (see clamp_temperature).
        n_ids: how many ids there are at all, see `numbered`.
        counted_B: (B,) bool; false rows are not in the pool, at least one must be. None: all are.
    """
    which_B, size = numbered(ids_B, n_ids)
    one_B = torch.ones_like(ids_B) if counted_B is None else counted_B.long()
    count_U = one_B.new_zeros(size).scatter_add_(0, which_B, one_B)
    target_UE = target_BE.new_zeros(size, target_BE.shape[1]).index_copy(0, which_B, target_BE)
    with torch.autocast(z_BE.device.type, enabled=False):  # bf16 would blur logits of up to 100 by 0.4
        logits_BU = (z_BE.float() @ target_UE.float().T) * log_temperature.float().exp()
    counted_BU = logits_BU + count_U.log()
    rows_B = counted_BU.logsumexp(dim=1) - counted_BU.gather(1, which_B[:, None])[:, 0]
    own_BU = which_B[:, None] == torch.arange(size, device=ids_B.device)
    n: Tensor | int = len(ids_B)
    row = rows_B.mean()
    if counted_B is not None:
        n = one_B.sum()
        row = torch.where(counted_B, rows_B, 0.0).sum() / n
        logits_BU = logits_BU.masked_fill(~counted_B[:, None], float("-inf"))
    own_BU |= count_U == 0  # what no row has adds 0, not infinity less infinity
    columns_U = logits_BU.logsumexp(dim=0) - logits_BU.masked_fill(~own_BU, float("-inf")).logsumexp(dim=0)
    loss: Tensor = 0.5 * (row + (columns_U * count_U).sum() / n)
    return loss


def numbered(ids_B: Tensor, n_ids: int | None = None) -> tuple[Tensor, int]:
    """Return each id's place among the distinct ones, ascending, long of shape (B,), and a size above all places.

    On a CPU the size is the number of distinct ids. On another device the host would have to wait for that number, so
    there it is the most that can be, the smaller of B and `n_ids`: tables of that size have rows that nothing uses.

    Args:
        ids_B: (B,) long.
        n_ids: how many ids there are at all; None: not known.
    """
    if ids_B.device.type == "cpu":
        distinct_U, which_B = torch.unique(ids_B, return_inverse=True)
        return which_B, len(distinct_U)
    sorted_B, order_B = ids_B.sort()
    next_B = F.pad((sorted_B[1:] != sorted_B[:-1]).long(), (1, 0))
    size = len(ids_B) if n_ids is None else min(len(ids_B), n_ids)
    return torch.empty_like(ids_B).scatter_(0, order_B, next_B.cumsum(0)), size


def cosine_loss(predicted_BHE: Tensor, target_BHE: Tensor, goal_seen_B: Tensor | None = None) -> Tensor:
    """Return the sum over Start, Mid (mean over the mids) and Goal of 1 - cos, mean over the batch (paper, 3.4; D 10).

    Args:
        predicted_BHE: (B, H, E) unit vectors in order Start, Mid_1 .. Mid_M, Goal.
        target_BHE: (B, H, E) text embeddings of the true labels, unit norm.
        goal_seen_B: (B,) bool; the goal of the other samples is no target (D 16). None: all are.
    """
    distance_BH = 1 - (predicted_BHE * target_BHE).sum(-1)
    seen_B = torch.ones_like(distance_BH[:, 0]) if goal_seen_B is None else goal_seen_B.float()
    goal = (distance_BH[:, -1] * seen_B).sum() / seen_B.sum().clamp_min(1)
    return distance_BH[:, 0].mean() + distance_BH[:, 1:-1].mean() + goal


def prediction_loss(
    predicted_BHE: Tensor,
    target_BHE: Tensor,
    ids_BH: Tensor,
    log_temperature: Tensor,
    infonce_weight: float,
    goal_seen_B: Tensor | None = None,
    n_ids: int | None = None,
) -> Tensor:
    """Return L_pred = cosine_loss + lambda * the alignment loss over the pool of all predicted tokens (paper, 3.4).

    Args:
        predicted_BHE: (B, H, E) predictions of unit norm.
        target_BHE: (B, H, E) text embeddings of the true labels, unit norm.
        ids_BH: (B, H) long, the label of each token.
        log_temperature: scalar, as in alignment_loss.
        infonce_weight: lambda.
        goal_seen_B: as in cosine_loss; a goal that is no target is not in the pool either.
        n_ids: how many labels there are, see `numbered`.
    """
    counted = None
    if goal_seen_B is not None:
        counted_BH = torch.ones_like(ids_BH, dtype=torch.bool)
        counted_BH[:, -1] = goal_seen_B
        counted = counted_BH.flatten()
    tokens, targets = predicted_BHE.flatten(0, 1), target_BHE.flatten(0, 1)
    pooled = alignment_loss(tokens, targets, ids_BH.flatten(), log_temperature, n_ids, counted)
    return cosine_loss(predicted_BHE, target_BHE, goal_seen_B) + infonce_weight * pooled


@torch.no_grad()
def clamp_temperature(log_temperature: nn.Parameter) -> nn.Parameter:
    """Hold the learnable factor at 100 or less, in place; the parameter can still fall afterwards. Returns it."""
    log_temperature.clamp_(max=math.log(MAX_TEMPERATURE))
    return log_temperature
