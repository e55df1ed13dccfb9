"""Losses as pure functions.

Shapes: B batch, E text width, H horizon, U distinct ids of a batch.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

MAX_TEMPERATURE = 100.0
"""Largest factor on the cosines (docs/decisions/paper-gaps.md, D 11)."""
NEVER = -1e9
"""Logit of what is not in the pool; finite, so that a difference of two is no NaN."""


def alignment_loss(
    z_BE: Tensor,
    target_BE: Tensor,
    ids_B: Tensor,
    log_temperature: Tensor,
    counted_B: Tensor | None = None,
) -> Tensor:
    """Return the symmetric multi-positive cross-entropy of (B, E) unit vectors; equal ids are positives (paper, 3.3).

    Both directions average -[log sum over the positives of exp(l) - log sum over all of exp(l)]. Rows of one id have
    one target, so each distinct target is compared once and counted as often as it occurs.

    Args:
        z_BE: predictions, unit norm.
        target_BE: frozen text embeddings, unit norm; rows of equal ids must be equal (one vector per label, D 23).
        ids_B: (B,) long, the text id of each row.
        log_temperature: scalar, log of the factor on the cosines, at most log 100 (see clamp_temperature).
        counted_B: (B,) bool, rows in the pool, at least one; None: all.
    """
    distinct_U, which_B = torch.unique(ids_B, return_inverse=True)
    size = len(distinct_U)
    one_B = torch.ones_like(ids_B) if counted_B is None else counted_B.long()
    count_U = one_B.new_zeros(size).scatter_add_(0, which_B, one_B)
    target_UE = target_BE.new_zeros(size, target_BE.shape[1]).index_copy(0, which_B, target_BE)
    offset_U = count_U.log().clamp_min(NEVER)
    with torch.autocast(z_BE.device.type, enabled=False):  # bf16 would blur logits of up to 100 by 0.4
        scaled_BE = z_BE.float() * log_temperature.float().exp()
        logits_BU = torch.addmm(offset_U, scaled_BE, target_UE.float().T)  # + log of the count, in both directions
    own_B = logits_BU.gather(1, which_B[:, None])[:, 0]
    rows_B = logits_BU.logsumexp(dim=1) - own_B
    if counted_B is not None:
        rows_B, own_B = torch.where(counted_B, rows_B, 0.0), torch.where(counted_B, own_B, NEVER)
        logits_BU = logits_BU.masked_fill(~counted_B[:, None], NEVER)
    # log sum exp over the positives of each id; in float64, because the order of the sum is not fixed on a GPU: the
    # float32 result practically is
    most_U = own_B.detach().new_full((size,), NEVER).scatter_reduce(0, which_B, own_B.detach(), "amax")
    above_B = (own_B - most_U[which_B]).exp().double()
    sums_U = above_B.new_zeros(size).index_add(0, which_B, above_B)
    positives_U = most_U + sums_U.where(sums_U > 0, 1.0).log().float()  # NEVER of an id without counted rows
    columns_U = logits_BU.logsumexp(dim=0) - positives_U
    loss: Tensor = 0.5 * (rows_B.sum() + (columns_U * count_U).sum()) / one_B.sum()
    return loss


def cosine_loss(predicted_BHE: Tensor, target_BHE: Tensor, goal_seen_B: Tensor | None = None) -> Tensor:
    """Return the sum over Start, Mid (mean over the mids) and Goal of 1 - cos, mean over the batch (paper, 3.4; D 10).

    Args:
        predicted_BHE: (B, H, E) unit vectors in order Start, Mid_1 .. Mid_M, Goal.
        target_BHE: (B, H, E) text embeddings of the true labels, unit norm.
        goal_seen_B: (B,) bool, samples whose goal is a target (D 16); None: all.
    """
    distance_BH = 1 - (predicted_BHE * target_BHE).sum(-1)
    seen_B = torch.ones_like(distance_BH[:, 0]) if goal_seen_B is None else goal_seen_B.float()
    goal = (distance_BH[:, -1] * seen_B).sum() / seen_B.sum().clamp_min(1)
    return distance_BH[:, 0].mean() + distance_BH[:, 1:-1].mean() + goal


class PredictedWindows(NamedTuple):
    """Predictions for windows of one horizon, and their targets."""

    predicted: Tensor
    """(B, H, E) of unit norm."""
    target: Tensor
    """(B, H, E) text embeddings of the true labels, unit norm."""
    ids: Tensor
    """(B, H) long, the label of each token."""
    goal_seen: Tensor | None
    """(B,) bool; a goal that was not seen is neither a target nor in the pool. None: all were seen."""

    def counted(self) -> Tensor:
        """Return (B, H) bool: the tokens that are in the pool."""
        counted_BH = torch.ones_like(self.ids, dtype=torch.bool)
        if self.goal_seen is not None:
            counted_BH[:, -1] = self.goal_seen
        return counted_BH


def pooled_prediction_loss(windows: PredictedWindows, log_temperature: Tensor, infonce_weight: float) -> Tensor:
    """Return L_pred = cosine_loss + lambda * the alignment loss over the pool of all predicted tokens (paper, 3.4).

    If goals are dropped, the goal term of the cosine is the mean over the goals that are seen. In the pool every token
    has the same weight. The temperature is that of `alignment_loss`.
    """
    counted = None if windows.goal_seen is None else windows.counted().flatten()
    tokens, targets = windows.predicted.flatten(0, 1), windows.target.flatten(0, 1)
    pooled = alignment_loss(tokens, targets, windows.ids.flatten(), log_temperature, counted)
    return cosine_loss(windows.predicted, windows.target, windows.goal_seen) + infonce_weight * pooled


def class_loss(windows: PredictedWindows, class_logits: Callable[[Tensor], Tensor]) -> Tensor:
    """Return the mean cross-entropy of a class head, (N, E) predicted embeddings -> (N, V), over all steps, Start and
    Goal included, a scalar (D 34); a goal that was not seen is no target."""
    logits_NV = class_logits(windows.predicted.flatten(0, 1))
    loss_N = F.cross_entropy(logits_NV, windows.ids.flatten(), reduction="none")
    counted_N = windows.counted().flatten()
    return torch.where(counted_N, loss_N, 0.0).sum() / counted_N.sum()


@torch.no_grad()
def clamp_temperature(log_temperature: nn.Parameter) -> nn.Parameter:
    """Clamp the learnable factor to at most 100, in place, and return it."""
    log_temperature.clamp_(max=math.log(MAX_TEMPERATURE))
    return log_temperature
