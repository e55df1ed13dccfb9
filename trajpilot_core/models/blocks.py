"""Attention, feed-forward and the pre-norm block of all models.

Axes: B batch, T tokens, S tokens attended to, D width, N heads, K width of a head. Dropout acts on what a block adds
to its residual stream, not on attention weights.
"""

import json
from dataclasses import asdict, dataclass
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

KeysValues = tuple[Tensor, Tensor]
INIT_STD = 0.02


@dataclass(frozen=True)
class DataSizes:
    """Sizes of a model that follow from the data: the fields of a subclass."""

    def to_json(self) -> str:
        """Return the sizes as JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the sizes back."""
        return cls(**json.loads(text))


class Standardised(nn.Module):
    """A model of raw features (..., D), which it standardises by the mean and deviation (D,) of the fitted takes."""

    feature_mean: Tensor
    feature_scale: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("feature_mean", torch.zeros(width))
        self.register_buffer("feature_scale", torch.ones(width))

    def standardise(self, feature_xD: Tensor) -> Tensor:
        """Return raw features (..., D) of any float type as float32, standardised."""
        return (feature_xD.float() - self.feature_mean) / self.feature_scale


class Attention(nn.Module):
    """Multi-head attention with separate keys and values, so that a shared context is encoded once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads; change one of the two in the config")
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def keys_values(self, source_BSD: Tensor) -> KeysValues:
        """Return keys and values, each (B, N, S, K)."""
        keys, values = self.key_value(source_BSD).chunk(2, dim=-1)
        return self._split(keys), self._split(values)

    def forward(self, x_BTD: Tensor, keys_values: KeysValues, mask_TS: Tensor | None = None) -> Tensor:
        """Return (B, T, D). `mask_TS` is true where token t may look at s; None: everywhere."""
        query_BNTK = self._split(self.query(x_BTD))
        mixed_BNTK = F.scaled_dot_product_attention(query_BNTK, *keys_values, attn_mask=mask_TS)
        result: Tensor = self.out(mixed_BNTK.transpose(1, 2).flatten(2))
        return result

    def _split(self, x_BTD: Tensor) -> Tensor:
        """(B, T, D) -> (B, N, T, K)."""
        return x_BTD.view(*x_BTD.shape[:2], self.heads, x_BTD.shape[2] // self.heads).transpose(1, 2)


def feed_forward(width: int, hidden: int, dropout: float) -> nn.Sequential:
    """Two linear layers with GELU between, (..., D) -> (..., D)."""
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width), nn.Dropout(dropout))


class TransformerBlock(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.dropout = nn.Dropout(dropout)
        self.hidden_norm = nn.LayerNorm(width)
        self.hidden = feed_forward(width, hidden, dropout)

    def forward(
        self, x_BTD: Tensor, mask_TS: Tensor | None = None, context: KeysValues | None = None
    ) -> tuple[Tensor, KeysValues]:
        """Return (B, T, D) and the tokens' keys and values; `context` are those of earlier tokens in this layer.

        `mask_TS` is true where token t may look at s; S counts `context` first, then the tokens themselves.
        """
        h_BTD = self.attention_norm(x_BTD)
        keys, values = self.attention.keys_values(h_BTD)
        seen = (
            (keys, values)
            if context is None
            else (torch.cat([context[0], keys], 2), torch.cat([context[1], values], 2))
        )
        x_BTD = x_BTD + self.dropout(self.attention(h_BTD, seen, mask_TS))
        return x_BTD + self.hidden(self.hidden_norm(x_BTD)), (keys, values)


def ends_of(x_BHx: Tensor) -> Tensor:
    """Return (B, 2, ...), first and last step of (B, H, ...); indexing by a list would upload it in every call."""
    return torch.stack([x_BHx[:, 0], x_BHx[:, -1]], dim=1)


def table(rows: int, width: int) -> nn.Parameter:
    """Return a learned table (rows, D) of small random vectors, from the global random state."""
    return nn.Parameter(torch.randn(rows, width) * INIT_STD)
