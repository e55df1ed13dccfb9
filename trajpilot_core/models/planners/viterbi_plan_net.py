"""ViterbiPlanNet: emissions of all steps from Start and Goal, trained through a differentiable Viterbi layer.

Source: github.com/Gigi-G/ViterbiPlanNet at 47a698b, models/. Its folder `step_models/` contains other planners.

Its Viterbi layer (models/modules.py, `StructuredDecoding.DVL`) replaces the max
of Viterbi by log-sum-exp and its arg max by softmax, and keeps the (B, H, A, A) soft back-pointers. The result is the
posterior of every step under the chain of transitions with a uniform start, so no pointers are needed: with
w = exp(alpha - max) a step forward is z = w T and one backward p <- w * ((p / z) T^t).

Axes: B windows, H steps, A actions, S sentences per action, K tasks, D feature width, E text width, W width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.planners import ViterbiPlanNetConfig
from trajpilot_core.models.planners.decoding import PlannerShape
from trajpilot_core.models.planners.state_encoder import StateEncoder, contrast_loss, task_head


class ViterbiPlanNet(nn.Module):
    """ViterbiPlanNet for one horizon. The task head is trained with the rest, but not used by the plan."""

    def __init__(self, cfg: ViterbiPlanNetConfig, shape: PlannerShape, horizon: int) -> None:
        super().__init__()
        self.cfg, self.horizon = cfg, horizon
        hidden = cfg.mlp_ratio * cfg.width
        self.state_encoder = StateEncoder(cfg, shape)
        self.task_head = task_head(cfg, shape.tasks, nn.GELU())
        layer = nn.TransformerEncoderLayer(cfg.width, cfg.heads, hidden, cfg.dropout, "gelu", batch_first=True)
        self.ends = nn.TransformerEncoder(layer, cfg.layers, nn.LayerNorm(cfg.width), enable_nested_tensor=False)
        self.emission = nn.Sequential(
            nn.Flatten(),
            nn.Linear(2 * cfg.width, hidden),
            nn.Sigmoid(),
            nn.Dropout(cfg.dropout),
            nn.Linear(hidden, horizon * shape.actions),
        )

    def soft_path(self, states_B2W: Tensor, transition_AA: Tensor) -> Tensor:
        """Return (B, H, A), the posterior of each step's action; transitions as in `normalised_rows`."""
        emission_BHA = self.emission(self.ends(states_B2W)).unflatten(1, (self.horizon, -1))
        return soft_viterbi(F.logsigmoid(emission_BHA.float()), normalised_rows(transition_AA, self.cfg.floor))

    def loss(
        self, features_B2D: Tensor, descriptions_ASE: Tensor, transition_AA: Tensor, labels_BH: Tensor, tasks_B: Tensor
    ) -> Tensor:
        """Return the scalar loss of a batch: actions, contrast of the ends, task.

        The sentences about the state before an action come first; transitions are as in `normalised_rows`; labels and
        tasks are long.
        """
        encoded = self.state_encoder(features_B2D, descriptions_ASE)
        action = squared_error(self.soft_path(encoded.states, transition_AA), labels_BH)
        state = contrast_loss(encoded.logits, labels_BH)
        task = squared_error(self.task_head(encoded.states), tasks_B)
        return action + (self.cfg.state_weight * state + self.cfg.task_weight * task)

    def plan(self, features_B2D: Tensor, descriptions_ASE: Tensor, transition_AA: Tensor) -> Tensor:
        """Return (B, H, A), the log of the soft path: it ranks the actions of each step. Descriptions are not read."""
        path_BHA = self.soft_path(self.state_encoder.encode(features_B2D), transition_AA)
        return path_BHA.clamp(min=torch.finfo(path_BHA.dtype).tiny).log()


def squared_error(values_BxA: Tensor, labels_Bx: Tensor) -> Tensor:
    """Return the mean squared error, a scalar, of (B, ..., A) values against the one-hot of (B, ...) labels."""
    return F.mse_loss(values_BxA, F.one_hot(labels_Bx, values_BxA.shape[-1]).to(values_BxA.dtype))


def normalised_rows(transition_AA: Tensor, floor: float) -> Tensor:
    """Return (A, A) positive rows that sum to 1, of counts or probabilities from row to column, raised to the floor; a
    row without transitions becomes uniform."""
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
        log_emission_BHA = log_emission_BHA.to(transition_AA.dtype)
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
