"""Losses as pure functions.

Shapes: B batch, E text width, H horizon, U distinct ids of a batch.
"""

import math

import torch
from torch import Tensor, nn

MAX_TEMPERATURE = 100.0
"""Largest factor on the cosines (docs/decisions/paper-gaps.md, D 11)."""


def alignment_loss(z_BE: Tensor, target_BE: Tensor, ids_B: Tensor, log_temperature: Tensor) -> Tensor:
    """Return the symmetric multi-positive cross-entropy of (B, E) unit vectors; equal ids are positives (paper, 3.3).

    Both directions average -[log sum over the positives of exp(l) - log sum over all of exp(l)]. Rows of one id have
    one target, so each distinct target is compared once and counted as often as it stands there.

    Args:
        z_BE: predictions, unit norm.
        target_BE: frozen text embeddings, unit norm; rows of equal ids must be equal (one vector per label, D 23).
        ids_B: (B,) long, the text id of each row.
        log_temperature: scalar, log of the factor on the cosines, at most log 100 (see clamp_temperature).
    """
    _, which_B, count_U = torch.unique(ids_B, return_inverse=True, return_counts=True)
    target_UE = target_BE.new_zeros(len(count_U), target_BE.shape[1]).index_copy(0, which_B, target_BE)
    with torch.autocast(z_BE.device.type, enabled=False):  # bf16 would blur logits of up to 100 by 0.4
        logits_BU = (z_BE.float() @ target_UE.float().T) * log_temperature.float().exp()
    counted_BU = logits_BU + count_U.log()
    rows = counted_BU.logsumexp(dim=1) - counted_BU.gather(1, which_B[:, None])[:, 0]
    own_BU = which_B[:, None] == torch.arange(len(count_U), device=ids_B.device)
    columns_U = logits_BU.logsumexp(dim=0) - logits_BU.masked_fill(~own_BU, float("-inf")).logsumexp(dim=0)
    loss: Tensor = 0.5 * (rows.mean() + (columns_U * count_U).sum() / len(ids_B))
    return loss


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
) -> Tensor:
    """Return L_pred = cosine_loss + lambda * the alignment loss over the pool of all predicted tokens (paper, 3.4).

    Args:
        predicted_BHE: (B, H, E) predictions of unit norm.
        target_BHE: (B, H, E) text embeddings of the true labels, unit norm.
        ids_BH: (B, H) long, the label of each token.
        log_temperature: scalar, as in alignment_loss.
        infonce_weight: lambda.
        goal_seen_B: as in cosine_loss; a goal that is no target is not in the pool either.
    """
    pool = [predicted_BHE.flatten(0, 1), target_BHE.flatten(0, 1), ids_BH.flatten()]
    if goal_seen_B is not None:
        kept_BH = torch.ones_like(ids_BH, dtype=torch.bool)
        kept_BH[:, -1] = goal_seen_B
        pool = [part[kept_BH.flatten()] for part in pool]
    pooled = alignment_loss(pool[0], pool[1], pool[2], log_temperature)
    return cosine_loss(predicted_BHE, target_BHE, goal_seen_B) + infonce_weight * pooled


@torch.no_grad()
def clamp_temperature(log_temperature: nn.Parameter) -> nn.Parameter:
    """Hold the learnable factor at 100 or less, in place; the parameter can still fall afterwards. Returns it."""
    log_temperature.clamp_(max=math.log(MAX_TEMPERATURE))
    return log_temperature
