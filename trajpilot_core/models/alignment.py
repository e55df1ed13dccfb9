"""E_tau: head motion of a segment -> the text space (paper, 3.3; docs/decisions/paper-gaps.md, D 21)."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.annotation import DOF, MOTIONS
from schemas.training import AlignmentConfig
from trajpilot_core.models.blocks import TransformerBlock, table


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
