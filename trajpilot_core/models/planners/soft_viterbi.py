"""ViterbiPlanNet's differentiable Viterbi layer by matrix products.

The original (github.com/Gigi-G/ViterbiPlanNet at 47a698b, models/modules.py, `StructuredDecoding.DVL`) replaces the max
of Viterbi by log-sum-exp and its arg max by softmax, and keeps the (B, H, A, A) soft back-pointers. The result is the
posterior of every step under the chain of transitions with a uniform start, so no pointers are needed: with
w = exp(alpha - max) a step forward is z = w T and one backward p <- w * ((p / z) T^t).
"""

import torch
from torch import Tensor


def normalised_rows(transition_AA: Tensor, floor: float) -> Tensor:
    """Return (A, A) positive rows that sum to 1; a row without transitions becomes uniform.

    Args:
        transition_AA: counts or probabilities, from row to column.
        floor: raises smaller entries before the rows are divided by their sums.
    """
    raised_AA = transition_AA.clamp(min=floor)
    return raised_AA / raised_AA.sum(dim=1, keepdim=True)


def soft_viterbi(log_emission_BHA: Tensor, transition_AA: Tensor) -> Tensor:
    """Return (B, H, A), the soft path: the posterior of each step's action, rows sum to 1. Differentiable.

    Shapes: B windows, H steps, A actions. Memory is O(B H A + A^2), that of the gradient included.

    Args:
        log_emission_BHA: log score of each action at each step; -inf forbids one, but not all of a step.
        transition_AA: positive probabilities from row to column, see `normalised_rows`; float32 needs 1e-15 or more.
    """
    with torch.autocast(log_emission_BHA.device.type, enabled=False):  # sums in bf16 would not be a posterior
        return _soft_path(log_emission_BHA.to(transition_AA.dtype), transition_AA)


def _soft_path(log_emission_BHA: Tensor, transition_AA: Tensor) -> Tensor:
    """As `soft_viterbi`, in the precision of the transitions."""
    alpha_BA = log_emission_BHA[:, 0]
    weights, sums = [], []
    for step_BA in log_emission_BHA[:, 1:].unbind(dim=1):
        top_B1 = alpha_BA.detach().amax(dim=1, keepdim=True)  # cancels: not added back
        weight_BA = (alpha_BA - top_B1).exp()
        sum_BA = weight_BA @ transition_AA
        alpha_BA = step_BA + sum_BA.log()
        weights.append(weight_BA)
        sums.append(sum_BA)
    path = [alpha_BA.softmax(dim=1)]
    for weight_BA, sum_BA in zip(reversed(weights), reversed(sums), strict=True):
        path.append(weight_BA * ((path[-1] / sum_BA) @ transition_AA.T))
    return torch.stack(path[::-1], dim=1)
