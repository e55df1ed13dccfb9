"""The causal predictor in event form, which predicts an action's text, and the attentive probe that reads it.

Source: paper, appendix on EPIC-KITCHENS-100; docs/decisions/epic-token.md.

Shapes: B clips, N tokens of the probe, D their width, C tokens of the predictor's clip, E text width, K candidates.
"""

import torch
from torch import Tensor, nn

from schemas.action_token import TOKENS_READ, TokenRow
from schemas.training import PredictorConfig
from trajpilot_core.metrics.epic_kitchens import ActionPart
from trajpilot_core.models.attentive_probe import INIT_STD, AttentiveProbe, ProbeShape
from trajpilot_core.models.outcome import EVENT
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape

MID = 1
"""Index of the action among the outputs Start, Mid, Goal."""


class ActionPredictor(nn.Module):
    """Predict the embedding of an action's text from the features before the action and head motion.

    Positions are Start (the features before it), one Mid (the action) and a masked Goal: the only input from the action
    itself is its head motion.
    """

    def __init__(self, cfg: PredictorConfig, shape: PredictorShape) -> None:
        super().__init__()
        self.backbone = CausalPredictor(cfg, shape)

    def forward(self, context_BCD: Tensor, latents_B2E: Tensor) -> Tensor:
        """Return (B, E) float32 of unit norm.

        Args:
            context_BCD: raw feature of the segment before the action.
            latents_B2E: E_tau embeddings of the head motion before the action and during it; zeros mean no trajectory.
        """
        latents_B3E = torch.cat([latents_B2E, torch.zeros_like(latents_B2E[:, :1])], dim=1)
        predicted_B3E: Tensor = self.backbone(context_BCD, None, latents_B3E, EVENT)
        return predicted_B3E[:, MID]

    def roll_out(self, context_BCD: Tensor, start_BE: Tensor, mids_BKE: Tensor) -> Tensor:
        """Return (B, K, E): the predictions under K candidate head motions of the action."""
        ends_B2E = torch.stack([start_BE, torch.zeros_like(start_BE)], dim=1)
        predicted_BK3E = self.backbone.roll_out(context_BCD, None, ends_B2E, mids_BKE[:, :, None], EVENT)
        return predicted_BK3E[:, :, MID]


class TokenProbe(nn.Module):
    """An attentive probe with one more token, projected to the width of the others.

    The token depends on the row: none, zeros, a learned one, or an input.
    """

    def __init__(self, row: TokenRow, shape: ProbeShape, text_width: int) -> None:
        super().__init__()
        self.row = row
        self.probe = AttentiveProbe(shape)
        self.constant = nn.Parameter(INIT_STD * torch.randn(shape.width)) if row == "constant" else None
        self.project = nn.Linear(text_width, shape.width) if is_given(row) else None
        if self.project is not None:
            nn.init.trunc_normal_(self.project.weight, std=INIT_STD)
            nn.init.zeros_(self.project.bias)

    def forward(self, tokens_BND: Tensor, token_BE: Tensor) -> dict[ActionPart, Tensor]:
        """Return part -> logits (B, C of that part); `token_BE` is only read if the row has an input token."""
        token_BD = self.own_token(tokens_BND, token_BE)
        if token_BD is not None:
            tokens_BND = torch.cat([tokens_BND, token_BD[:, None]], dim=1)
        logits: dict[ActionPart, Tensor] = self.probe(tokens_BND)
        return logits

    def own_token(self, tokens_BND: Tensor, token_BE: Tensor) -> Tensor | None:
        """Return the additional token (B, D); None if there is none."""
        if self.project is not None:
            projected: Tensor = self.project(token_BE)
            return projected
        if self.constant is not None:
            return self.constant.to(tokens_BND.dtype).expand(len(tokens_BND), -1)
        return torch.zeros_like(tokens_BND[:, 0]) if self.row == "zero" else None


def is_given(row: TokenRow) -> bool:
    """Return whether a row's token comes from a predictor."""
    return row in TOKENS_READ or row == "shuffled"
