"""E_tau, head motion -> text space, and the causal predictor in text space.

Source: paper, 3.3 and 3.4; docs/decisions/paper-gaps.md, D 1 to 16 and D 21.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.annotation import DOF, MOTIONS
from schemas.training import AlignmentConfig, PredictorConfig
from trajpilot_core.models.blocks import (
    Attention,
    DataSizes,
    KeysValues,
    Standardised,
    TransformerBlock,
    ends_of,
    feed_forward,
    table,
)

START, GOAL, MID = 0, 1, 2


@dataclass(frozen=True)
class PredictorShape(DataSizes):
    """Sizes that follow from the data."""

    feature_width: int
    tokens: int
    """Tokens per feature: 1 pooled, 8 temporal."""
    text_width: int
    max_horizon: int
    classes: int = 0
    """V, outputs of a class head; 0: no head."""


class TrajectoryEncoder(nn.Module):
    """Small transformer over the 16 relative motions: learned positions, mean pool, linear, unit norm.

    Shapes: B batch, D width, E text width. The buffer `scale` (6,) is the per-channel standard deviation of the
    motions of the fitted takes; nothing is subtracted, so zero motion stays zero (D 19).
    """

    scale: Tensor

    def __init__(self, cfg: AlignmentConfig, text_width: int) -> None:
        super().__init__()
        self.text_width = text_width
        self.register_buffer("scale", torch.ones(DOF))
        self.motion_in = nn.Linear(DOF, cfg.width)
        self.position = table(MOTIONS, cfg.width)
        self.blocks = nn.ModuleList(
            TransformerBlock(cfg.width, cfg.heads, cfg.hidden, cfg.dropout) for _ in range(cfg.layers)
        )
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, text_width)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(1.0 / cfg.temperature)))

    def forward(self, motions_B166: Tensor) -> Tensor:
        """Return (B, E) float32 of unit norm for (B, 16, 6) motions that are already divided by `scale`."""
        return F.normalize(self.head(self.states(motions_B166)).float(), dim=-1)

    def states(self, motions_B166: Tensor) -> Tensor:
        """Return (B, D), the input of the head: it contains more of the motion than the text space can express."""
        x_BTD = self.motion_in(motions_B166) + self.position
        for block in self.blocks:
            x_BTD, _ = block(x_BTD)
        state_BD: Tensor = self.norm(x_BTD).mean(dim=1)
        return state_BD


def channel_scale(motions_S166: Tensor) -> Tensor:
    """Return the (6,) standard deviation per channel of (S, 16, 6) motions; 1 for a channel that never changes."""
    std = motions_S166.reshape(-1, DOF).double().std(dim=0, correction=0).float()
    return torch.where(std > 0, std, torch.ones_like(std))


def structured_mask(context: int, mids: int, plans: int = 1, device: torch.device | None = None) -> Tensor:
    """Return the (T, T) mask of `context` tokens, then `plans` groups of `mids`: true where row t may see column s.

    Context sees all the context and no mid; mid j of a plan sees the context and the mids <= j of its own plan (D 8).
    """
    causal = torch.ones(mids, mids, dtype=torch.bool, device=device).tril()
    mask = torch.zeros(context + plans * mids, context + plans * mids, dtype=torch.bool, device=device)
    mask[:, :context] = True
    mask[context:, context:] = torch.kron(torch.eye(plans, dtype=torch.bool, device=device), causal)
    return mask


class Compressor(nn.Module):
    """Shared learned queries, plus the embedding of the role, cross-attend into the tokens of one clip (D 5).

    Shapes: B batch, C tokens of the clip, D feature width, Q queries, W width.
    """

    def __init__(self, cfg: PredictorConfig, shape: PredictorShape) -> None:
        super().__init__()
        self.feature_in = nn.Linear(shape.feature_width, cfg.width)
        self.token_position = table(shape.tokens, cfg.width)
        self.queries = table(cfg.queries, cfg.width)
        self.role = table(2, cfg.width)
        self.query_norm, self.clip_norm = nn.LayerNorm(cfg.width), nn.LayerNorm(cfg.width)
        self.attention = Attention(cfg.width, cfg.heads)
        self.hidden_norm = nn.LayerNorm(cfg.width)
        self.hidden = feed_forward(cfg.width, cfg.hidden, cfg.dropout)

    def forward(self, clip_BCD: Tensor, role: int) -> Tensor:
        """Return (B, Q, W) context tokens of one role (START or GOAL)."""
        clip_BCW = self.clip_norm(self.feature_in(clip_BCD) + self.token_position)
        x_BQW = (self.queries + self.role[role]).expand(len(clip_BCD), -1, -1)
        x_BQW = x_BQW + self.attention(self.query_norm(x_BQW), self.attention.keys_values(clip_BCW))
        out: Tensor = x_BQW + self.hidden(self.hidden_norm(x_BQW))
        return out


class CausalPredictor(Standardised):
    """Predict the text embedding of Start, every Mid and Goal from the two clips and the trajectories.

    Shapes: B batch, C tokens of a clip, D feature width, H horizon (Start and Goal included), M = H - 2 mids,
    P plans per window, Q queries, T = 2 Q + M tokens, V classes, W width, E text width. The buffers `feature_mean` and
    `feature_scale` (D,) standardise the raw features (docs/decisions/feature-standardisation.md).
    """

    def __init__(self, cfg: PredictorConfig, shape: PredictorShape) -> None:
        super().__init__(shape.feature_width)
        self.shape, self.context, self.is_standardised = shape, 2 * cfg.queries, cfg.standardise
        self.compressor = Compressor(cfg, shape)
        self.endpoint_in = nn.Linear(shape.text_width, cfg.width, bias=False)
        self.mid_in = nn.Linear(shape.text_width, cfg.width, bias=False)
        self.mid_query = table(1, cfg.width)
        self.kind, self.step = table(3, cfg.width), table(shape.max_horizon, cfg.width)
        self.horizon = table(shape.max_horizon + 1, cfg.width)
        self.blocks = nn.ModuleList(
            TransformerBlock(cfg.width, cfg.heads, cfg.hidden, cfg.dropout) for _ in range(cfg.layers)
        )
        self.norm = nn.LayerNorm(cfg.width)
        self.head = nn.Linear(cfg.width, shape.text_width)
        self.log_temperature = nn.Parameter(torch.tensor(math.log(1.0 / cfg.temperature)))
        self.class_head = nn.Linear(shape.text_width, shape.classes) if shape.classes else None

    def forward(
        self,
        start_BCD: Tensor,
        goal_BCD: Tensor | None,
        latents_BHE: Tensor,
        horizon: int,
        goal_seen_B: Tensor | None = None,
    ) -> Tensor:
        """Return (B, H, E) float32 of unit norm: Start, Mid_1 .. Mid_M, Goal.

        Args:
            start_BCD: raw feature of the first segment.
            goal_BCD: raw feature of the last segment. None: no goal; predictions are as with `goal_seen_B` false.
            latents_BHE: E_tau embeddings per position (Start, Mid_1.., Goal); zeros mean no trajectory (D 14).
            horizon: H, from 3 to the model's max_horizon.
            goal_seen_B: bool; false zeroes the goal's tokens, its trajectory included (D 16). None: all seen.
        """
        return self.read_out(self.encode(start_BCD, goal_BCD, latents_BHE, horizon, goal_seen_B))

    def encode(
        self,
        start_BCD: Tensor,
        goal_BCD: Tensor | None,
        latents_BHE: Tensor,
        horizon: int,
        goal_seen_B: Tensor | None = None,
    ) -> Tensor:
        """Return (B, 2 Q + M, W), the outputs of the last block: Start, Goal, then the mids.

        Arguments as in `forward`.
        """
        context_BTW = self.context_tokens(start_BCD, goal_BCD, ends_of(latents_BHE), horizon, goal_seen_B)
        x_BTW = torch.cat([context_BTW, self.mid_tokens(latents_BHE[:, 1:-1], horizon)], dim=1)
        mask = structured_mask(self.context, horizon - 2, device=x_BTW.device)
        for block in self.blocks:
            x_BTW, _ = block(x_BTW, mask)
        return x_BTW

    def roll_out(
        self, start_BCD: Tensor, goal_BCD: Tensor | None, endpoints_B2E: Tensor, mids_BPME: Tensor, horizon: int
    ) -> Tensor:
        """Return (B, P, H, E): the predictions under P candidate mid trajectories, the context encoded once per window.

        Equal to P calls of forward with the same endpoints, because the context is blind to the mids.
        """
        plans, mids = mids_BPME.shape[1:3]
        context_BTW = self.context_tokens(start_BCD, goal_BCD, endpoints_B2E, horizon)
        x_BTW = self.mid_tokens(mids_BPME.flatten(0, 1), horizon).view(len(mids_BPME), plans * mids, -1)
        mask = structured_mask(self.context, mids, plans, x_BTW.device)[self.context :]
        for block in self.blocks:
            context_BTW, seen = block(context_BTW)
            x_BTW, _ = block(x_BTW, mask, seen)
        x_BPMW = x_BTW.view(len(x_BTW), plans, mids, -1)
        context_BPTW = context_BTW[:, None].expand(-1, plans, -1, -1)
        both = torch.cat([context_BPTW, x_BPMW], dim=2).flatten(0, 1)
        return self.read_out(both).view(len(x_BTW), plans, horizon, -1)

    def context_tokens(
        self,
        start_BCD: Tensor,
        goal_BCD: Tensor | None,
        endpoints_B2E: Tensor,
        horizon: int,
        goal_seen_B: Tensor | None = None,
    ) -> Tensor:
        """Return (B, 2 Q, W): compressed Start and Goal with their trajectories, type, step and horizon added.

        Without a goal its tokens are zero before type, step and horizon; its trajectory is not read either.
        """
        start_BQW = self.compressor(self.standardise(start_BCD), START) + self.endpoint_in(endpoints_B2E[:, :1])
        if goal_BCD is None:
            goal_BQW = torch.zeros_like(start_BQW)
        else:
            goal_BQW = self.compressor(self.standardise(goal_BCD), GOAL) + self.endpoint_in(endpoints_B2E[:, 1:])
            if goal_seen_B is not None:
                goal_BQW = goal_BQW * goal_seen_B[:, None, None]
        start_BQW = start_BQW + self.kind[START] + self.step[0]
        goal_BQW = goal_BQW + self.kind[GOAL] + self.step[horizon - 1]
        return torch.cat([start_BQW, goal_BQW], dim=1) + self.horizon[horizon]

    def mid_tokens(self, mids_BME: Tensor, horizon: int) -> Tensor:
        """Return (B, M, W): the sum of the five inputs of a mid (trajectory, query, step, horizon, type; D 7)."""
        steps_MW = self.step[1 : horizon - 1]
        tokens: Tensor = self.mid_in(mids_BME) + self.mid_query + steps_MW + self.horizon[horizon] + self.kind[MID]
        return tokens

    def class_logits(self, predicted_xE: Tensor) -> Tensor:
        """Return (..., V) float32: the class head's logits for predicted embeddings (..., E).

        Raises TypeError: the model has no class head.
        """
        if self.class_head is None:
            raise TypeError("this predictor has no class head; its labels are ranked by their text embeddings")
        logits: Tensor = self.class_head(predicted_xE.to(self.class_head.weight.dtype))
        return logits.float()

    def standardise(self, feature_BCD: Tensor) -> Tensor:
        """As `Standardised`; without `PredictorConfig.standardise` features (B, C, D) stay raw."""
        return super().standardise(feature_BCD) if self.is_standardised else feature_BCD.float()

    def read_out(self, x_BTW: Tensor) -> Tensor:
        """(B, 2 Q + M, W) -> (B, H, E): the mean of a role's outputs, then the shared head (D 9)."""
        return F.normalize(self.head(self.pool_roles(x_BTW)).float(), dim=-1)

    def pool_roles(self, x_BTW: Tensor) -> Tensor:
        """(B, 2 Q + M, W) -> (B, H, W): the mean of each role's normalised outputs: Start, mids, Goal."""
        x_BTW = self.norm(x_BTW)
        start_B1W, goal_B1W = (part.mean(1, keepdim=True) for part in x_BTW[:, : self.context].chunk(2, dim=1))
        return torch.cat([start_B1W, x_BTW[:, self.context :], goal_B1W], dim=1)


def feature_scales(features_SCD: Tensor) -> KeysValues:
    """Return mean and standard deviation (D,) float32 of raw features (S, C, D).

    A component that varies a thousandfold less than the average one is divided by that bound instead of its deviation:
    its variation is rounding.
    """
    flat = features_SCD.flatten(0, 1).float()
    std, mean = torch.std_mean(flat, dim=0, correction=0)
    floor = (std.mean() * 1e-3).clamp_min(torch.finfo(torch.float32).tiny)
    return mean, torch.maximum(std, floor)
