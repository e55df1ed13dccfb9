"""SCHEMA's state encoder, decoder of descriptions and task head; ViterbiPlanNet uses encoder and head, too.

Source: github.com/WenliangGuo/SCHEMA at 15e64be, models/state_encoder.py, models/procedure_model.py, models/modules.py.
The original repeats the decoder's memory per window; here its keys and values are computed once, and the windows are
folded into the query axis, which changes no number.

Axes: B windows, T tokens, R tokens that are used afterwards, A actions, S sentences per action, M = A S, W width.
"""

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.planners import EndpointPlannerConfig
from trajpilot_core.models.blocks import Attention, KeysValues, ends_of
from trajpilot_core.models.planners.decoding import PlannerShape

EVERY_TOKEN = slice(None)


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
        """Encode both; S is even. Dropout on descriptions has one mask per call, which all windows of a batch share."""
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


class NormedAttention(nn.Module):
    """Attention with dropout and a LayerNorm on its output; attention weights have no dropout."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.dropout = nn.Dropout(dropout)
        self.norm = nn.LayerNorm(width)
        # initial weights as those of torch's MultiheadAttention, which the original uses: query, key and value are one
        # matrix (3 W, W) with Xavier's bound; the output has the default weights of a linear layer, biases are zero
        bound = math.sqrt(6.0 / (width + 3 * width))
        for layer in (self.attention.query, self.attention.key_value):
            nn.init.uniform_(layer.weight, -bound, bound)
        for layer in (self.attention.query, self.attention.key_value, self.attention.out):
            nn.init.zeros_(layer.bias)

    def forward(self, x_BTW: Tensor, keys_values: KeysValues) -> Tensor:
        """Return (B, T, W), to be added to the tokens."""
        added_BTW: Tensor = self.norm(self.dropout(self.attention(x_BTW, keys_values)))
        return added_BTW


class DecoderLayer(nn.Module):
    """Post-norm layer: attention to the window's own tokens, attention to the shared memory, two linear layers."""

    def __init__(self, cfg: EndpointPlannerConfig) -> None:
        super().__init__()
        self.own = NormedAttention(cfg.width, cfg.heads, cfg.dropout)
        self.memory = NormedAttention(cfg.width, cfg.heads, cfg.dropout)
        self.hidden = nn.Sequential(
            nn.Linear(cfg.width, cfg.mlp_ratio * cfg.width),
            nn.GELU(),
            nn.Dropout(cfg.dropout),
            nn.Linear(cfg.mlp_ratio * cfg.width, cfg.width),
        )
        self.norms = nn.ModuleList(nn.LayerNorm(cfg.width) for _ in range(3))
        self.dropout = nn.Dropout(cfg.dropout)

    def forward(self, x_BTW: Tensor, memory_1MW: Tensor, read: slice = EVERY_TOKEN) -> Tensor:
        """Return (B, R, W), the tokens selected by `read`, after attention to all T tokens and the memory."""
        x_BRW = x_BTW[:, read]
        added_BRW = self.own(x_BRW, self.own.attention.keys_values(x_BTW))
        x_BRW = self.norms[0](x_BRW + self.dropout(added_BRW))
        folded_1QW = x_BRW.flatten(0, 1)[None]
        added_BRW = self.memory(folded_1QW, self.memory.attention.keys_values(memory_1MW)).view_as(x_BRW)
        x_BRW = self.norms[1](x_BRW + self.dropout(added_BRW))
        read_BRW: Tensor = self.norms[2](x_BRW + self.dropout(self.hidden(x_BRW)))
        return read_BRW


class DescriptionDecoder(nn.Module):
    """Decoder layers over one memory. Their initial weights are equal, since the original copies one layer."""

    def __init__(self, cfg: EndpointPlannerConfig) -> None:
        super().__init__()
        first = DecoderLayer(cfg)
        self.layers = nn.ModuleList([first, *(copy.deepcopy(first) for _ in range(cfg.layers - 1))])

    def forward(self, tokens_BTW: Tensor, sentences_ASW: Tensor, read: slice) -> Tensor:
        """Return (B, R, W), the tokens selected by `read`; the last layer computes only these."""
        memory_1MW = sentences_ASW.flatten(0, 1)[None]
        for layer in self.layers[:-1]:
            tokens_BTW = layer(tokens_BTW, memory_1MW)
        read_BRW: Tensor = self.layers[-1](tokens_BTW, memory_1MW, read)
        return read_BRW


def sine_positions(length: int, width: int) -> Tensor:
    """Return (T, W) for T = length, W = width: sines in even, cosines in odd columns, periods to 10,000 x 2 pi."""
    place_T1 = torch.arange(length, dtype=torch.float32)[:, None]
    rate_P = (torch.arange(0, width, 2, dtype=torch.float32) * (-math.log(10_000) / width)).exp()
    angle_TP = place_T1 * rate_P
    return torch.stack([angle_TP.sin(), angle_TP.cos()], dim=-1).flatten(1)
