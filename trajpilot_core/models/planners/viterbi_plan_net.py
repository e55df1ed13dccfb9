"""ViterbiPlanNet: emissions of all steps from Start and Goal, trained through a differentiable Viterbi layer.

Source: github.com/Gigi-G/ViterbiPlanNet at 47a698b, models/. Its folder `step_models/` contains other planners.

Axes: B windows, H steps, A actions, S sentences per action, K tasks, D feature width, E text width, W width.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.planners import ViterbiPlanNetConfig
from trajpilot_core.models.planners.planner import PlannerLoss, PlannerShape
from trajpilot_core.models.planners.soft_viterbi import normalised_rows, soft_viterbi
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
        """Return (B, H, A), the posterior of each step's action.

        Args:
            transition_AA: counts or probabilities from row to column; rows without any count as uniform.
        """
        emission_BHA = self.emission(self.ends(states_B2W)).unflatten(1, (self.horizon, -1))
        return soft_viterbi(F.logsigmoid(emission_BHA.float()), normalised_rows(transition_AA, self.cfg.floor))

    def loss(
        self, features_B2D: Tensor, descriptions_ASE: Tensor, transition_AA: Tensor, labels_BH: Tensor, tasks_B: Tensor
    ) -> PlannerLoss:
        """Return the loss of a batch.

        Args:
            features_B2D: features of Start and Goal.
            descriptions_ASE: text embeddings of every action's sentences, those about the state before it first.
            transition_AA: as in `soft_path`.
            labels_BH: long, the actions.
            tasks_B: long.
        """
        encoded = self.state_encoder(features_B2D, descriptions_ASE)
        terms = {
            "action": squared_error(self.soft_path(encoded.states, transition_AA), labels_BH),
            "state": contrast_loss(encoded.logits, labels_BH),
            "task": squared_error(self.task_head(encoded.states), tasks_B),
        }
        weighted = self.cfg.state_weight * terms["state"] + self.cfg.task_weight * terms["task"]
        return PlannerLoss(terms["action"] + weighted, terms)

    def plan(self, features_B2D: Tensor, descriptions_ASE: Tensor, transition_AA: Tensor) -> Tensor:
        """Return (B, H, A), the log of the soft path: it ranks the actions of each step. Descriptions are not read."""
        path_BHA = self.soft_path(self.state_encoder.encode(features_B2D), transition_AA)
        return path_BHA.clamp(min=torch.finfo(path_BHA.dtype).tiny).log()


def squared_error(values_BxA: Tensor, labels_Bx: Tensor) -> Tensor:
    """Return the mean squared error, a scalar, of (B, ..., A) values against the one-hot of (B, ...) labels."""
    return F.mse_loss(values_BxA, F.one_hot(labels_Bx, values_BxA.shape[-1]).to(values_BxA.dtype))
