"""Models of single events: the causal predictor of an outcome or of an action's text, and the probes that read tokens.

Source: paper, appendices on basketball and EPIC-KITCHENS-100; D 39; docs/decisions/epic-token.md.
Shapes: B events, N tokens of the probe, C tokens of a clip, D feature width, E text width, K candidates.
"""

import torch
from torch import Tensor, nn

from schemas.events import TOKENS_READ, CompletedOutcome, TokenRow
from schemas.training import PredictorConfig
from trajpilot_core.metrics.epic_kitchens import ActionPart
from trajpilot_core.models.attentive_probe import INIT_STD, AttentivePooler, AttentiveProbe, ProbeShape, initialise
from trajpilot_core.models.blocks import Standardised
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape

EVENT = 3
"""Positions of an event: Start, one Mid, and a Goal that is masked."""
CLASSES = 2
MISSED, MADE = range(CLASSES)
"""Classes of the head."""
MID = 1
"""Index of the action among the outputs Start, Mid, Goal."""


class OutcomePredictor(nn.Module):
    """Predict logits of missed and made from the features before a shot and head motion.

    The Goal is masked: the only input from the shot itself is the head motion of the Mid. The head reads the mean of
    the outputs of Start and Mid, without that of the Goal, which has no input.
    """

    def __init__(self, cfg: PredictorConfig, shape: PredictorShape) -> None:
        super().__init__()
        self.backbone = CausalPredictor(cfg, shape)
        self.head = nn.Linear(cfg.width, 2)

    def forward(self, context_BCD: Tensor, latents_B2E: Tensor) -> Tensor:
        """Return (B, 2) float32 logits from the raw feature of the segment before the shot, and the E_tau embeddings of
        that segment and of the shot; zeros mean no trajectory."""
        goal_BCD, goal_B1E = torch.zeros_like(context_BCD), torch.zeros_like(latents_B2E[:, :1])
        masked_B = torch.zeros(len(context_BCD), dtype=torch.bool, device=context_BCD.device)
        latents_B3E = torch.cat([latents_B2E, goal_B1E], dim=1)
        x_BTW = self.backbone.encode(context_BCD, goal_BCD, latents_B3E, EVENT, masked_B)
        start_and_mid_B2W = self.backbone.pool_roles(x_BTW)[:, :2]
        logits: Tensor = self.head(start_and_mid_B2W.mean(1))
        return logits.float()

    def roll_out(self, context_BCD: Tensor, start_BE: Tensor, mids_BKE: Tensor) -> Tensor:
        """Return (B, K, 2) logits under K candidate head motions of the shot."""
        n_candidates = mids_BKE.shape[1]
        start_BKE = start_BE[:, None].expand(-1, n_candidates, -1)
        latents_xE = torch.stack([start_BKE, mids_BKE], dim=2).flatten(0, 1)
        logits: Tensor = self(context_BCD.repeat_interleave(n_candidates, dim=0), latents_xE)
        return logits.view(len(context_BCD), n_candidates, 2)


class ShotProbe(Standardised):
    """V-JEPA 2's attentive probe on the tokens of the segment before a shot; no trajectory.

    Of the pooler's three queries (verb, noun, action) the head reads the action's, with two columns.
    """

    def __init__(self, cfg: CompletedOutcome, width: int) -> None:
        super().__init__(width)
        shape = ProbeShape(width, verbs=0, nouns=0, actions=2, heads=cfg.probe_heads, blocks=cfg.probe_blocks)
        self.pooler = AttentivePooler(shape)
        self.head = nn.Linear(width, shape.actions)
        initialise(self.pooler)

    def forward(self, context_BCD: Tensor) -> Tensor:
        """Return (B, 2) float32 logits of missed and made; `context_BCD` is raw."""
        logits: Tensor = self.head(self.pooler(self.standardise(context_BCD))[:, -1])
        return logits.float()


class ActionPredictor(nn.Module):
    """Predict the embedding of an action's text from the features before the action and head motion.

    Positions are Start (the features before it), one Mid (the action) and a masked Goal: the only input from the action
    itself is its head motion.
    """

    def __init__(self, cfg: PredictorConfig, shape: PredictorShape) -> None:
        super().__init__()
        self.backbone = CausalPredictor(cfg, shape)

    def forward(self, context_BCD: Tensor, latents_B2E: Tensor) -> Tensor:
        """Return (B, E) float32 of unit norm from the raw feature of the segment before the action, and the E_tau
        embeddings of the head motion before and during it; zeros mean no trajectory."""
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
        is_given = row in TOKENS_READ or row == "shuffled"  # by a predictor
        self.project = nn.Linear(text_width, shape.width) if is_given else None
        if self.project is not None:
            nn.init.trunc_normal_(self.project.weight, std=INIT_STD)
            nn.init.zeros_(self.project.bias)

    def forward(self, tokens_BND: Tensor, token_BE: Tensor) -> dict[ActionPart, Tensor]:
        """Return part -> logits (B, C of that part); `token_BE` is only read if the row has an input token."""
        if self.project is not None:
            token_BD = self.project(token_BE)
        elif self.constant is not None:
            token_BD = self.constant.to(tokens_BND.dtype).expand(len(tokens_BND), -1)
        else:
            token_BD = torch.zeros_like(tokens_BND[:, 0]) if self.row == "zero" else None
        if token_BD is not None:
            tokens_BND = torch.cat([tokens_BND, token_BD[:, None]], dim=1)
        logits: dict[ActionPart, Tensor] = self.probe(tokens_BND)
        return logits
