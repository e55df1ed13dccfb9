"""SCHEMA: decode the states between the actions from Start and Goal, then the actions between the states.

Source: Niu et al., ICLR 2024; github.com/WenliangGuo/SCHEMA at 15e64be, models/. Not implemented: its probabilistic
mode, and 16,514 parameters that never get a gradient (`logit_scale` of both decoders, `action_decoder.proj`).

Axes: B windows, H steps, A actions, S sentences per action, K tasks, D feature width, E text width, W width.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.planners import SchemaConfig
from trajpilot_core.models.planners.decoding import PlannerShape
from trajpilot_core.models.planners.state_encoder import (
    DescriptionDecoder,
    EncodedStates,
    StateEncoder,
    contrast_loss,
    sine_positions,
    task_head,
)

MIDDLES = slice(1, -1)
ACTIONS = slice(1, None, 2)
"""Places of the actions where states and actions alternate, starting and ending with a state."""


class SchemaAnswer(NamedTuple):
    """SCHEMA's outputs for a batch."""

    encoded: EncodedStates
    states: Tensor
    """(B, H + 1, W): Start as encoded, the decoded states in between, Goal as encoded."""
    logits: Tensor
    """(B, H, A), of the actions."""
    task_logits: Tensor
    """(B, K)."""


class StateDecoder(nn.Module):
    """Fill in the H - 1 states between Start and Goal; tokens are the H + 1 states, unknown ones zero."""

    positions: Tensor

    def __init__(self, cfg: SchemaConfig, tasks: int, horizon: int) -> None:
        super().__init__()
        self.unknown = horizon - 1
        self.ends = nn.Linear(cfg.width, cfg.width)
        self.task = nn.Linear(tasks, cfg.width) if cfg.has_task_input else None
        self.register_buffer("positions", sine_positions(horizon + 1, cfg.width), persistent=False)
        self.decoder = DescriptionDecoder(cfg)
        self.out = nn.Linear(cfg.width, cfg.width, bias=False)

    def forward(self, states_B2W: Tensor, sentences_ASW: Tensor, task_logits_BK: Tensor) -> Tensor:
        """Return (B, H + 1, W); both ends are unchanged. No gradient reaches the task logits."""
        ends_B2W = self.ends(states_B2W)
        unknown_BMW = ends_B2W.new_zeros(len(ends_B2W), self.unknown, ends_B2W.shape[-1])
        tokens_BTW = self.positions + between(ends_B2W, unknown_BMW)
        if self.task is not None:
            tokens_BTW = tokens_BTW + self.task(task_logits_BK.detach())[:, None]
        return between(states_B2W, self.out(self.decoder(tokens_BTW, sentences_ASW, MIDDLES)))


def between(ends_B2W: Tensor, middles_BMW: Tensor) -> Tensor:
    """Return (B, 1 + M + 1, W): Start, the middles, Goal."""
    return torch.cat([ends_B2W[:, :1], middles_BMW, ends_B2W[:, 1:]], dim=1)


class ActionDecoder(nn.Module):
    """Classify the actions between H + 1 states; tokens alternate, actions are zero."""

    positions: Tensor

    def __init__(self, cfg: SchemaConfig, shape: PlannerShape, horizon: int) -> None:
        super().__init__()
        self.task = nn.Embedding(shape.tasks, cfg.width)
        self.register_buffer("positions", sine_positions(2 * horizon + 1, cfg.width), persistent=False)
        self.decoder = DescriptionDecoder(cfg)
        self.classifier = nn.Sequential(
            nn.Linear(cfg.width, cfg.width), nn.ReLU(), nn.Dropout(cfg.dropout), nn.Linear(cfg.width, shape.actions)
        )

    def forward(self, states_BTW: Tensor, sentences_ASW: Tensor, tasks_B: Tensor) -> Tensor:
        """Return (B, H, A) logits."""
        alternating_BUW = torch.stack([states_BTW, torch.zeros_like(states_BTW)], dim=2).flatten(1, 2)[:, :-1]
        tokens_BUW = alternating_BUW + self.positions + self.task(tasks_B)[:, None]
        logits_BHA: Tensor = self.classifier(self.decoder(tokens_BUW, sentences_ASW, ACTIONS))
        return logits_BHA


class SchemaPlanner(nn.Module):
    """SCHEMA for one horizon. It never reads the features of the states between Start and Goal."""

    def __init__(self, cfg: SchemaConfig, shape: PlannerShape, horizon: int) -> None:
        super().__init__()
        self.cfg = cfg
        self.state_encoder = StateEncoder(cfg, shape)
        self.task_head = task_head(cfg, shape.tasks, nn.ReLU())
        self.state_decoder = StateDecoder(cfg, shape.tasks, horizon)
        self.action_decoder = ActionDecoder(cfg, shape, horizon)

    def forward(self, features_B2D: Tensor, descriptions_ASE: Tensor, tasks_B: Tensor | None = None) -> SchemaAnswer:
        """Return the outputs for a batch.

        Args:
            descriptions_ASE: text embeddings of every action's sentences, those about the state before it first.
            tasks_B: (B,) long, the task input of the action decoder; None: the task head's prediction.
        """
        encoded = self.state_encoder(features_B2D, descriptions_ASE)
        task_logits_BK = self.task_head(encoded.states)
        states_BTW = self.state_decoder(encoded.states, encoded.sentences, task_logits_BK)
        tasks_B = task_logits_BK.argmax(dim=1) if tasks_B is None else tasks_B
        logits_BHA = self.action_decoder(states_BTW, encoded.sentences, tasks_B)
        return SchemaAnswer(encoded, states_BTW, logits_BHA, task_logits_BK)

    def loss(
        self, features_B2D: Tensor, descriptions_ASE: Tensor, transition_AA: Tensor, labels_BH: Tensor, tasks_B: Tensor
    ) -> Tensor:
        """Return the scalar loss of a batch: actions, contrast of ends, states in between, task (given in training).

        Transitions are not read: SCHEMA uses them in decoding only. Labels and tasks are long.
        """
        answer = self(features_B2D, descriptions_ASE, tasks_B if self.training else None)
        targets_BMW = middle_targets(answer.encoded.sentences, labels_BH)
        action = F.cross_entropy(answer.logits.flatten(0, 1), labels_BH.flatten())
        state = contrast_loss(answer.encoded.logits, labels_BH)
        middle = F.mse_loss(answer.states[:, MIDDLES], targets_BMW)
        task = F.cross_entropy(answer.task_logits, tasks_B)
        weighted = self.cfg.state_weight * state + self.cfg.middle_weight * middle
        return action + weighted + self.cfg.task_weight * task

    def plan(self, features_B2D: Tensor, descriptions_ASE: Tensor, transition_AA: Tensor) -> Tensor:
        """Return (B, H, A) log probabilities of each step's action, before any decoding; transitions are not read."""
        answer: SchemaAnswer = self(features_B2D, descriptions_ASE)
        return answer.logits.float().log_softmax(dim=-1)


def middle_targets(sentences_ASW: Tensor, labels_BH: Tensor) -> Tensor:
    """Return (B, H - 1, W), the targets of the states between the actions, without gradient.

    A state is the mean of the sentences after the action before it and of those before the action after it.
    """
    before_AW, after_AW = (half.mean(dim=1) for half in sentences_ASW.detach().chunk(2, dim=1))
    return (after_AW[labels_BH[:, :-1]] + before_AW[labels_BH[:, 1:]]) / 2
