"""Models that predict whether a shot goes in: a head on the causal predictor, and a probe of the segment before it.

Source: paper, appendix on basketball; D 39.
Shapes: B shots, C tokens of a clip, D feature width, E text width, K candidates.
"""

import torch
from torch import Tensor, nn

from schemas.outcome import OutcomeConfig
from schemas.training import PredictorConfig
from trajpilot_core.models.attentive_probe import AttentivePooler, ProbeShape, initialise
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape

EVENT = 3
"""Positions of an event: Start, one Mid, and a Goal that is masked."""
CLASSES = 2
MISSED, MADE = range(CLASSES)
"""Classes of the head."""


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
        """Return (B, 2) float32 logits.

        Args:
            context_BCD: raw feature of the segment before the shot.
            latents_B2E: E_tau embeddings of that segment and of the shot; zeros mean no trajectory.
        """
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


class ShotProbe(nn.Module):
    """V-JEPA 2's attentive probe on the tokens of the segment before a shot; no trajectory.

    Of the pooler's three queries (verb, noun, action) the head reads the action's, with two columns. The buffers
    `feature_mean` and `feature_scale` (D,) standardise the tokens.
    """

    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(self, cfg: OutcomeConfig, width: int) -> None:
        super().__init__()
        shape = ProbeShape(width, verbs=0, nouns=0, actions=2, heads=cfg.probe_heads, blocks=cfg.probe_blocks)
        self.register_buffer("feature_mean", torch.zeros(width))
        self.register_buffer("feature_scale", torch.ones(width))
        self.pooler = AttentivePooler(shape)
        self.head = nn.Linear(width, shape.actions)
        initialise(self.pooler)

    def forward(self, context_BCD: Tensor) -> Tensor:
        """Return (B, 2) float32 logits of missed and made; `context_BCD` is raw."""
        tokens_BCD = (context_BCD.float() - self.feature_mean) / self.feature_scale
        logits: Tensor = self.head(self.pooler(tokens_BCD)[:, -1])
        return logits.float()
