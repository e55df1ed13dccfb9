"""V-JEPA 2's predictor in plain torch: what tokens a frozen encoder would give of a moment that is not seen yet.

Parameters have the names of the released files. The predictor of release 2.1 (24 blocks, four levels in) is another
network and is refused. Source: facebookresearch/vjepa2 at c2963a47; docs/decisions/epic-probe.md.

Shapes: B clips, N context tokens, M tokens asked for, D width of the encoder, W width of the predictor.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from schemas.vjepa import TUBELET
from trajpilot_core.encoders.video.vjepa import NORM_EPS, RotaryBlock, VjepaSpec, rope_table
from trajpilot_core.encoders.video.vjepa_checkpoint import PREFIXES, frozen_with, read_checkpoint
from trajpilot_core.errors import CheckpointError

MASK_INDEX = 1
"""Which of the mask tokens stands for what is asked for, as in the evaluation of anticipation."""
ENTRY = "predictor"
"""Of a released file."""


@dataclass(frozen=True)
class VjepaPredictorShape:
    """Size of a predictor."""

    embed: int
    """Width of the encoder, D."""
    width: int = 384
    depth: int = 12
    heads: int = 12
    hidden: int = 1536
    mask_tokens: int = 10


PREDICTORS = {"tiny": VjepaPredictorShape(embed=256, width=96, depth=2, heads=4, hidden=384)}
"""FeatureConfig.model -> its predictor, where that is not of the released size."""


class VjepaPredictor(nn.Module):
    """Context tokens and positions in, tokens of these positions out."""

    def __init__(self, shape: VjepaPredictorShape) -> None:
        super().__init__()
        self.shape = shape
        self.spec = VjepaSpec(shape.width, shape.depth, shape.heads, shape.hidden, release="2.0")
        self.predictor_embed = nn.Linear(shape.embed, shape.width)
        tokens = (nn.Parameter(torch.zeros(1, 1, shape.width)) for _ in range(shape.mask_tokens))
        self.mask_tokens = nn.ParameterList(tokens)
        self.predictor_blocks = nn.ModuleList(RotaryBlock(self.spec) for _ in range(shape.depth))
        self.predictor_norm = nn.LayerNorm(shape.width, eps=NORM_EPS)
        self.predictor_proj = nn.Linear(shape.width, shape.embed)

    def forward(self, context_BND: Tensor, target_BM: Tensor, grid: int) -> Tensor:
        """Return (B, M, D): the tokens at other positions than those seen.

        Args:
            context_BND: the encoder's tokens, at the positions 0 to N - 1.
            target_BM: positions, long, ordered by time, row, column as tokens are.
            grid: patches on a side of a frame.
        """
        batch, seen, _ = context_BND.shape
        asked_BMW = self.mask_tokens[MASK_INDEX % len(self.mask_tokens)].expand(batch, target_BM.shape[1], -1)
        x_BTW = torch.cat([self.predictor_embed(context_BND), asked_BMW], dim=1)
        context_BN = torch.arange(seen, device=target_BM.device).expand(batch, -1)
        places_BT = torch.cat([context_BN, target_BM], dim=1)
        moments = int(places_BT.max()) // grid**2 + 1
        cos, sin = (table.to(x_BTW.device)[places_BT][:, None] for table in rope_table(self.spec, moments, grid, grid))
        for block in self.predictor_blocks:
            x_BTW = block(x_BTW, cos, sin)
        out: Tensor = self.predictor_proj(self.predictor_norm(x_BTW)[:, seen:])
        return out


def target_places(ahead_B: Tensor, context_tokens: int, grid: int, rate_hz: float) -> Tensor:
    """Return (B, grid x grid): the positions of one tubelet so many seconds after the context.

    Args:
        ahead_B: seconds from the end of the context.
        context_tokens: N.
        grid: patches on a side of a frame.
        rate_hz: frames of the clip per second; whole tubelets are skipped, what is left over is not.
    """
    skipped_B = (ahead_B * rate_hz / TUBELET).to(torch.int64)
    one_tubelet = torch.arange(grid**2, device=ahead_B.device)
    return context_tokens + grid**2 * skipped_B[:, None] + one_tubelet


def load_predictor(path: str, shape: VjepaPredictorShape) -> VjepaPredictor:
    """Build a predictor with the weights of a released file, in eval mode, float32.

    Raises:
        CheckpointError: no such file, no predictor in it, or one of another size or release.
    """
    if not Path(path).is_file():
        raise CheckpointError(f"there is no file {path}; give the downloaded V-JEPA 2 weights (docs/models.md)")
    content: Any = read_checkpoint(path).get(ENTRY)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path} holds no {ENTRY!r} with tensors; give a file of V-JEPA 2 as it was released")
    state = {}
    for name, value in content.items():
        for prefix in PREFIXES:
            name = name.replace(prefix, "")
        state[name] = value
    state.pop("predictor_pos_embed", None)  # of the first training; rotary positions replaced it
    fault = (
        f"the predictor of {path} is not one of V-JEPA 2 with {shape.depth} blocks of {shape.width} on an encoder "
        f"of width {shape.embed} (that of 2.1 is another network: give a file of V-JEPA 2, or set "
        "features.ahead_tubelets to null)"
    )
    return frozen_with(lambda: VjepaPredictor(shape), state, fault)
