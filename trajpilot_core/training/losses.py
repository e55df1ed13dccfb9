"""Losses as pure functions.

Shapes: B batch, E text width, H horizon, P pooled tokens (B x H).
"""

import math

import torch
from torch import Tensor, nn

MAX_TEMPERATURE = 100.0
"""Largest factor on the cosines (docs/decisions/paper-gaps.md, D 11)."""


def multi_positive_ce(logits_BB: Tensor, positive_BB: Tensor) -> Tensor:
    """Return -mean_i [ log sum over positives j of exp(l_ij) - log sum over all j of exp(l_ij) ] (paper, 3.3).

    Args:
        logits_BB: (B, B) float.
        positive_BB: (B, B) bool; every row has at least one true.
    """
    positives = logits_BB.masked_fill(~positive_BB, float("-inf")).logsumexp(dim=1)
    return (logits_BB.logsumexp(dim=1) - positives).mean()


def alignment_loss(z_BE: Tensor, target_BE: Tensor, ids_B: Tensor, log_temperature: Tensor) -> Tensor:
    """Return the symmetric multi-positive cross-entropy of (B, E) unit vectors; equal ids are positives (paper, 3.3).

    Args:
        z_BE: predictions, unit norm.
        target_BE: frozen text embeddings, unit norm.
        ids_B: (B,) long, the text id of each row.
        log_temperature: scalar, log of the factor on the cosines, at most log 100 (see clamp_temperature).
    """
    with torch.autocast(z_BE.device.type, enabled=False):  # bf16 would blur logits of up to 100 by 0.4
        logits_BB = (z_BE.float() @ target_BE.float().T) * log_temperature.float().exp()
    positive_BB = ids_B[:, None] == ids_B[None, :]
    return 0.5 * (multi_positive_ce(logits_BB, positive_BB) + multi_positive_ce(logits_BB.T, positive_BB.T))


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
