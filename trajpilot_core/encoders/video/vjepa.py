"""The V-JEPA encoder in plain torch, with the parameter names of the released checkpoints.

Sources: arXiv 2603.14482 (V-JEPA 2.1) and its public code; differences from V-JEPA 2.0 and checks of agreement:
docs/decisions/vjepa.md. Shapes: B clips, C colours, T frames, H W pixels, N tokens (tubelets x patches), D width,
h heads, d channels of a head.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from schemas.features import PATCH_PX, TUBELET, VJEPA_SIZES, Release

ROPE_THETA, ROPE_GRID = 10_000.0, 16
"""Base of the rotary frequencies; patches per side in pretraining (256 px)."""
NORM_EPS = 1e-6
Rotation = tuple[Tensor, Tensor]
"""Cosines and sines that rotate the channels of every token."""


@dataclass(frozen=True)
class VjepaSpec:
    """Size and release of one encoder."""

    width: int
    depth: int
    heads: int
    hidden: int
    release: Release = field(default="2.1", kw_only=True)
    """2.1: true rotations, modality embeddings, an image patch embedding, four norms. 2.0: without these."""
    interpolate_rope: bool = field(default=True, kw_only=True)
    """Scale row and column positions to the 16 x 16 grid of pretraining (2.1 only)."""

    @property
    def levels(self) -> tuple[int, ...]:
        """Layers whose normed outputs are the hierarchical output; the last one is the encoder's output."""
        quarters = tuple((self.depth * quarter + 3) // 4 - 1 for quarter in (1, 2, 3, 4))
        return (*quarters[:2], 37, 47) if self.depth == 48 else quarters  # 37, not 35, in the released ViT-G


SIZES = {name: VjepaSpec(*size) for name, size in VJEPA_SIZES.items()}
"""FeatureConfig.model -> size, as of release 2.1."""


class PatchEmbed(nn.Module):
    """Split a clip into tubelets of `frames` x 16 x 16 pixels and project each to the width."""

    def __init__(self, width: int, frames: int) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, width, (frames, PATCH_PX, PATCH_PX), stride=(frames, PATCH_PX, PATCH_PX))

    def forward(self, clip_BCTHW: Tensor) -> Tensor:
        """Return (B, N, D), tokens ordered by time, row, column."""
        tokens: Tensor = self.proj(clip_BCTHW).flatten(2).transpose(1, 2)
        return tokens


class SelfAttention(nn.Module):
    """Self-attention of tokens; with rotary positions in time, row and column where they are given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x_BND: Tensor, rotation: Rotation | None = None) -> Tensor:
        """Return (B, N, D)."""
        batch, tokens, width = x_BND.shape
        q, k, v = self.qkv(x_BND).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if rotation is not None:
            q, k = rotate(q, *rotation), rotate(k, *rotation)
        mixed = F.scaled_dot_product_attention(q, k, v)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return out


class Mlp(nn.Module):
    """Two layers with GELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)

    def forward(self, x_BND: Tensor) -> Tensor:
        """Return (B, N, D)."""
        out: Tensor = self.fc2(F.gelu(self.fc1(x_BND)))
        return out


class SelfBlock(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, width: int, heads: int, hidden: int, norm_eps: float) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=norm_eps)
        self.attn = SelfAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=norm_eps)
        self.mlp = Mlp(width, hidden)

    def forward(self, x_BND: Tensor, rotation: Rotation | None = None) -> Tensor:
        """Return (B, N, D)."""
        x_BND = x_BND + self.attn(self.norm1(x_BND), rotation)
        out: Tensor = x_BND + self.mlp(self.norm2(x_BND))
        return out


class VjepaEncoder(nn.Module):
    """Frozen video encoder: normalised clips in, tokens out."""

    def __init__(self, spec: VjepaSpec) -> None:
        super().__init__()
        self.spec = spec
        self.patch_embed = PatchEmbed(spec.width, TUBELET)
        self.blocks = nn.ModuleList(SelfBlock(spec.width, spec.heads, spec.hidden, NORM_EPS) for _ in range(spec.depth))
        if spec.release == "2.1":  # the weights of images are in the files, and unused
            self.patch_embed_img = PatchEmbed(spec.width, 1)
            self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, spec.width))
            self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, spec.width))
            self.norms_block = nn.ModuleList(nn.LayerNorm(spec.width, eps=NORM_EPS) for _ in spec.levels)
        else:
            self.norm = nn.LayerNorm(spec.width, eps=NORM_EPS)
        self._rotations: dict[tuple[int, int, int, torch.device], Rotation] = {}

    def forward(self, clip_BCTHW: Tensor, hierarchical: bool = False) -> Tensor:
        """Encode normalised clips (B, 3, T, H, W); T even, H and W multiples of 16.

        Returns (B, N, D); with `hierarchical` (2.1 only) (B, N, 4 D), four normed levels, the output last.
        """
        is_newer, x_BND = self.spec.release == "2.1", self.patch_embed(clip_BCTHW)
        if is_newer:
            x_BND = x_BND + self.video_mod_embed
        grid = (clip_BCTHW.shape[2] // TUBELET, clip_BCTHW.shape[3] // PATCH_PX, clip_BCTHW.shape[4] // PATCH_PX)
        key = (*grid, x_BND.device)
        if key not in self._rotations:
            cos_Nd, sin_Nd = rope_table(self.spec, *grid)
            self._rotations[key] = cos_Nd.to(x_BND.device), sin_Nd.to(x_BND.device)
        levels = []
        for layer, block in enumerate(self.blocks):
            x_BND = block(x_BND, self._rotations[key])
            if hierarchical:
                levels += [
                    norm(x_BND) for norm, at in zip(self.norms_block, self.spec.levels, strict=True) if at == layer
                ]
        if hierarchical:
            return torch.cat(levels, dim=-1)
        out: Tensor = self.norms_block[-1](x_BND) if is_newer else self.norm(x_BND)
        return out


def rope_table(spec: VjepaSpec, depth: int, rows: int, columns: int) -> Rotation:
    """Return cosines and sines (N, d) in float32 for a grid of depth x rows x columns tokens.

    A head's channels are split into three equal even parts (time, row, column); the rest is not rotated. Release 2.0
    tiles the frequencies over adjacent pairs of channels: not a rotation, but its weights were trained with it.
    """
    head = spec.width // spec.heads
    part = 2 * (head // 3 // 2)
    time, row, column = torch.meshgrid(
        torch.arange(depth, dtype=torch.float32), positions(spec, rows), positions(spec, columns), indexing="ij"
    )
    omega = ROPE_THETA ** -(torch.arange(part // 2, dtype=torch.float32) / (part / 2))
    angles = [at.reshape(-1, 1) * omega for at in (time, row, column)]
    if spec.release == "2.1":
        spread = [angle.repeat_interleave(2, dim=-1) for angle in angles]
    else:
        spread = [angle.repeat(1, 2) for angle in angles]
    still = torch.zeros(depth * rows * columns, head - 3 * part)
    angle_Nd = torch.cat([*spread, still], dim=-1)
    return angle_Nd.cos(), angle_Nd.sin()


def positions(spec: VjepaSpec, patches: int) -> Tensor:
    """Return the positions of one side, shape (patches,), scaled to the pretraining grid if the spec requires it."""
    plain = torch.arange(patches, dtype=torch.float32)
    if spec.release == "2.0" or not spec.interpolate_rope or patches == 1:
        return plain
    return plain * ((ROPE_GRID - 1) / (patches - 1))


def rotate(x_BhNd: Tensor, cos_Nd: Tensor, sin_Nd: Tensor) -> Tensor:
    """Rotate adjacent pairs of channels of (B, h, N, d) in float32; returns the input's type."""
    x = x_BhNd.float()
    even, odd = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((-odd, even), dim=-1).flatten(-2)
    return (x * cos_Nd + turned * sin_Nd).to(x_BhNd.dtype)
