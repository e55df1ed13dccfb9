"""V-JEPA's predictor in plain torch: predicts the tokens of a frozen encoder for a future tubelet.

Parameters have the names of the released files. Release 2.1 reads and predicts the encoder's levels (four of its
layers), adds a modality embedding, and rotates true pairs of channels.
Source: facebookresearch/vjepa2 at c2963a47 (2.0), its app/vjepa_2_1 at be434e46 (2.1); docs/decisions/epic-probe.md.

Shapes: B clips, N context tokens, M target tokens, D width of the encoder, L levels, W width of the predictor.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from schemas.features import Release
from trajpilot_core.encoders.video.vjepa import NORM_EPS, SIZES, SelfBlock, VjepaSpec, rope_table
from trajpilot_core.encoders.video.vjepa_checkpoint import WRAPPERS, frozen_with, read_checkpoint
from trajpilot_core.errors import CheckpointError

MASK_INDEX = 1
"""Index of the mask token for targets, as in the evaluation of anticipation."""
ENTRY = "predictor"
"""Key in a released file."""


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
    release: Release = "2.0"
    levels: int = 1
    """L: levels of the encoder that are read (concatenated) and predicted (2.1)."""
    out: int | None = None
    """Width of the predictions of a level; None: D. Distilled encoders of 2.1 predict their teacher's tokens."""
    interpolate_rope: bool = True
    """Scale row and column positions, as in the encoder (2.1)."""


PREDICTORS = {"tiny": VjepaPredictorShape(embed=256, width=96, depth=2, heads=4, hidden=384)}
"""FeatureConfig.model -> its predictor, if it does not have the released size."""
DISTILLED = ("vit_base", "vit_large")
"""Sizes of release 2.1 with ViT-G as their teacher: their predictor has one level."""


def shape_of(model: str, release: Release, *, interpolate_rope: bool = True) -> VjepaPredictorShape:
    """Return the released size of the predictor in the file of an encoder (`FeatureConfig.model`)."""
    plain = PREDICTORS.get(model, VjepaPredictorShape(SIZES[model].width))
    if release == "2.0":
        return plain
    newer = replace(plain, release=release, mask_tokens=8, depth=24, levels=4, interpolate_rope=interpolate_rope)
    return replace(newer, depth=12, levels=1, out=SIZES["vit_gigantic"].width) if model in DISTILLED else newer


class VjepaPredictor(nn.Module):
    """Predict the tokens at some positions from context tokens."""

    def __init__(self, shape: VjepaPredictorShape) -> None:
        super().__init__()
        self.shape = shape
        sizes = (shape.width, shape.depth, shape.heads, shape.hidden)
        self.spec = VjepaSpec(*sizes, release=shape.release, interpolate_rope=shape.interpolate_rope)
        if shape.levels == 1:
            self.predictor_embed: nn.Module = nn.Linear(shape.embed, shape.width)
        else:
            read = nn.Linear(shape.levels * shape.embed, shape.embed)
            self.predictor_embed = nn.Sequential(read, nn.GELU(), nn.Linear(shape.embed, shape.width))
        tokens = (nn.Parameter(torch.zeros(1, 1, shape.width)) for _ in range(shape.mask_tokens))
        self.mask_tokens = nn.ParameterList(tokens)
        self.predictor_blocks = nn.ModuleList(
            SelfBlock(shape.width, shape.heads, shape.hidden, NORM_EPS) for _ in range(shape.depth)
        )
        self.predictor_norm = nn.LayerNorm(shape.width, eps=NORM_EPS)
        whole = shape.levels * (shape.out or shape.embed)
        self.predictor_proj = nn.Linear(shape.width, whole)
        if shape.release == "2.1":
            self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, shape.width))
            self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, shape.width))
            self.predictor_proj_context = nn.Linear(shape.width, whole)  # used in its training only

    def forward(self, context_BND: Tensor, target_BM: Tensor, grid: int) -> Tensor:
        """Return (B, M, D), or (B, M, L D) for several levels, the last one at the end: tokens at unseen positions.

        Args:
            context_BND: the encoder's tokens at the positions 0 to N - 1; for several levels L D wide.
            target_BM: positions, long, ordered by time, row, column, as tokens are.
            grid: patches per side.
        """
        batch, seen, _ = context_BND.shape
        target_BMW = self.mask_tokens[MASK_INDEX % len(self.mask_tokens)].expand(batch, target_BM.shape[1], -1)
        x_BTW = torch.cat([self.predictor_embed(context_BND), target_BMW], dim=1)
        if self.shape.release == "2.1":
            x_BTW = x_BTW + self.video_mod_embed
        context_BN = torch.arange(seen, device=target_BM.device).expand(batch, -1)
        places_BT = torch.cat([context_BN, target_BM], dim=1)
        moments = int(places_BT.max()) // grid**2 + 1
        cos, sin = (table.to(x_BTW.device)[places_BT][:, None] for table in rope_table(self.spec, moments, grid, grid))
        for block in self.predictor_blocks:
            x_BTW = block(x_BTW, (cos, sin))
        out: Tensor = self.predictor_proj(self.predictor_norm(x_BTW)[:, seen:])
        return out


def load_predictor(path: str, model: str, *, interpolate_rope: bool = True) -> VjepaPredictor:
    """Build the predictor in the released file of an encoder, in eval mode, float32; names identify its release.

    Raises CheckpointError: it is missing, has another size, or predicts tokens of another encoder.
    """
    state = predictor_state(path)
    release: Release = "2.1" if "predictor_proj_context.weight" in state else "2.0"
    shape = shape_of(model, release, interpolate_rope=interpolate_rope)
    if shape.out not in (None, shape.embed):
        raise CheckpointError(
            f"the predictor of {path} predicts tokens of its teacher, {shape.out} wide, but those of {model} are "
            f"{shape.embed} wide. Set features.ahead_tubelets to null, or use ViT-g or ViT-G"
        )
    return with_shape(state, shape, path)


def predictor_state(path: str) -> dict[str, Tensor]:
    """Return parameter name -> tensor of the predictor in a released file; CheckpointError if there is none."""
    if not Path(path).is_file():
        raise CheckpointError(f"there is no file {path}; name the downloaded V-JEPA 2 weights (docs/models.md)")
    content: Any = read_checkpoint(path).get(ENTRY)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path} contains no {ENTRY!r} with tensors; use a released file of V-JEPA 2")
    state = {re.sub(WRAPPERS, "", name): value for name, value in content.items()}
    state.pop("predictor_pos_embed", None)  # of an earlier training; unused with rotary positions
    return state


def with_shape(state: dict[str, Tensor], shape: VjepaPredictorShape, path: str) -> VjepaPredictor:
    """Return the predictor of a size with these weights; CheckpointError if they have another size."""
    fault = (
        f"the predictor of {path} is not one of V-JEPA {shape.release} with {shape.depth} blocks of {shape.width} on "
        f"{shape.levels} levels of an encoder of width {shape.embed} (use the released file, or set "
        "features.ahead_tubelets to null)"
    )
    return frozen_with(lambda: VjepaPredictor(shape), state, fault)
