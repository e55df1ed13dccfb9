"""SCHEMA's state encoder with its contrast to descriptions, and the task head; ViterbiPlanNet uses both, too.

Source: github.com/WenliangGuo/SCHEMA at 15e64be, models/state_encoder.py and models/procedure_model.py.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.planners import EndpointPlannerConfig
from trajpilot_core.models.blocks import ends_of
from trajpilot_core.models.planners.planner import PlannerShape


class EncodedStates(NamedTuple):
    """Endpoints and descriptions in one space of width W."""

    states: Tensor
    """(B, 2, W), Start and Goal."""
    sentences: Tensor
    """(A, S, W), every sentence of every action, those about the state before it first."""
    logits: Tensor
    """(B, 2, A), Start against the sentences before each action, Goal against those after it."""


class StateEncoder(nn.Module):
    """Map endpoint features and descriptions into one space and compare them there by cosine.

    Shapes: B windows, D feature width, A actions, S sentences per action (the first half describes the state before,
    the second the state after), E text width, W width. The states between Start and Goal are not read: the original
    encodes them in training, but does not use the result.
    """

    def __init__(self, cfg: EndpointPlannerConfig, shape: PlannerShape) -> None:
        super().__init__()
        self.features = nn.Sequential(  # no non-linearity in between, as the original
            nn.Linear(shape.feature_width, 2 * shape.feature_width), nn.Linear(2 * shape.feature_width, cfg.width)
        )
        self.sentences = nn.Linear(shape.text_width, cfg.width, bias=False)
        self.dropout = nn.Dropout(cfg.input_dropout)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(1.0 / cfg.temperature)))

    def forward(self, features_B2D: Tensor, descriptions_ASE: Tensor) -> EncodedStates:
        """Encode both; the dropout on descriptions has one mask per call, which all windows of a batch share.

        Args:
            descriptions_ASE: text embeddings of the sentences; S is even.
        """
        sentences_ASW = self.sentences(self.dropout(descriptions_ASE))
        states_B2W = self.encode(features_B2D)
        return EncodedStates(states_B2W, sentences_ASW, self.contrast(states_B2W, sentences_ASW))

    def encode(self, features_B2D: Tensor) -> Tensor:
        """Return (B, 2, W), only the states."""
        states_B2W: Tensor = self.features(self.dropout(features_B2D))
        return states_B2W

    def contrast(self, states_B2W: Tensor, sentences_ASW: Tensor) -> Tensor:
        """Return (B, 2, A): the mean cosine with an action's sentences, over the learned temperature.

        A mean of cosines is the product with the mean of the unit vectors, so sentences are averaged first.
        """
        with torch.autocast(
            states_B2W.device.type, enabled=False
        ):  # the temperature would magnify the rounding of bf16
            before_ASW, after_ASW = F.normalize(sentences_ASW.float(), dim=-1).chunk(2, dim=1)
            sides_2AW = torch.stack([before_ASW.mean(dim=1), after_ASW.mean(dim=1)])
            cosines_B2A = torch.einsum("bsw,saw->bsa", F.normalize(states_B2W.float(), dim=-1), sides_2AW)
            return self.log_temperature.exp() * cosines_B2A


def contrast_loss(logits_B2A: Tensor, labels_BH: Tensor) -> Tensor:
    """Return the mean cross-entropy of both endpoints' contrasts, a scalar, with the first and the last action."""
    return F.cross_entropy(logits_B2A.flatten(0, 1), ends_of(labels_BH).flatten())


def task_head(cfg: EndpointPlannerConfig, tasks: int, activation: nn.Module) -> nn.Sequential:
    """Layers (B, 2, W) -> (B, tasks) that recognise the task from both states together."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(2 * cfg.width, cfg.width),
        activation,
        nn.Dropout(cfg.dropout),
        nn.Linear(cfg.width, tasks),
    )
