"""The attentive probe of V-JEPA 2: predicts the next verb, noun and action from the tokens of a frozen encoder.

Parameters have the names of the released heads, so that weights can be compared by name.
Source: facebookresearch/vjepa2 at c2963a47 (attentive pooler and classifier); docs/decisions/epic-probe.md.

Shapes: B clips, N tokens, D width, Q queries (verb, noun, action), h heads, C classes of a part.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trajpilot_core.encoders.video.vjepa import Mlp, SelfBlock
from trajpilot_core.metrics.epic_kitchens import PARTS, ActionPart

MLP_RATIO, INIT_STD, NORM_EPS = 4, 0.02, 1e-5


class ProbeShape(NamedTuple):
    """Sizes of a probe."""

    width: int
    """Width of a token."""
    verbs: int
    nouns: int
    actions: int
    heads: int = 16
    blocks: int = 3
    """Blocks of self-attention before the queries attend to the tokens; V-JEPA 2 also counts the latter: 4."""


class QueryAttention(nn.Module):
    """Cross-attention from the queries to the tokens, without an output projection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width)
        self.kv = nn.Linear(width, 2 * width)

    def forward(self, queries_BQD: Tensor, x_BND: Tensor) -> Tensor:
        """Return (B, Q, D)."""
        batch, tokens, width = x_BND.shape
        q = self.q(queries_BQD).view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
        k, v = self.kv(x_BND).view(batch, tokens, 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width)


class QueryBlock(nn.Module):
    """Block in which the queries attend to the tokens; only the tokens are normed before the attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=NORM_EPS)
        self.xattn = QueryAttention(width, heads)
        self.norm2 = nn.LayerNorm(width, eps=NORM_EPS)
        self.mlp = Mlp(width, MLP_RATIO * width)

    def forward(self, queries_BQD: Tensor, x_BND: Tensor) -> Tensor:
        """Return (B, Q, D)."""
        queries_BQD = queries_BQD + self.xattn(queries_BQD, self.norm1(x_BND))
        out: Tensor = queries_BQD + self.mlp(self.norm2(queries_BQD))
        return out


class AttentivePooler(nn.Module):
    """Tokens (B, N, D) -> one vector per query, (B, Q, D)."""

    def __init__(self, shape: ProbeShape) -> None:
        super().__init__()
        width, heads = shape.width, shape.heads
        if width % heads:
            raise ValueError(f"width {width} is not a multiple of {heads} heads; change probe.heads")
        self.query_tokens = nn.Parameter(torch.zeros(1, len(PARTS), width))
        self.cross_attention_block = QueryBlock(width, heads)
        self.blocks = nn.ModuleList(SelfBlock(width, heads, MLP_RATIO * width, NORM_EPS) for _ in range(shape.blocks))

    def forward(self, x_BND: Tensor) -> Tensor:
        """Return (B, Q, D)."""
        for block in self.blocks:
            x_BND = block(x_BND)
        out: Tensor = self.cross_attention_block(self.query_tokens.expand(len(x_BND), -1, -1), x_BND)
        return out


class AttentiveProbe(nn.Module):
    """Pooler and a linear head for each part; weights are sampled from the global random state."""

    def __init__(self, shape: ProbeShape) -> None:
        super().__init__()
        self.shape = shape
        self.pooler = AttentivePooler(shape)
        self.verb_classifier = nn.Linear(shape.width, shape.verbs)
        self.noun_classifier = nn.Linear(shape.width, shape.nouns)
        self.action_classifier = nn.Linear(shape.width, shape.actions)
        initialise(self.pooler)

    def forward(self, x_BND: Tensor) -> dict[ActionPart, Tensor]:
        """Return part -> logits (B, C)."""
        pooled_BQD = self.pooler(x_BND)
        return {
            "verb": self.verb_classifier(pooled_BQD[:, 0]),
            "noun": self.noun_classifier(pooled_BQD[:, 1]),
            "action": self.action_classifier(pooled_BQD[:, 2]),
        }


@torch.no_grad()
def initialise(pooler: AttentivePooler) -> None:
    """Sample the weights of a pooler: truncated normal 0.02, biases zero; outputs of block l are divided by sqrt(2 l).

    The block of the queries counts as the last self-attention block. Heads keep torch's initialisation.
    """
    nn.init.trunc_normal_(pooler.query_tokens, std=INIT_STD)
    for part in pooler.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=INIT_STD)
            nn.init.zeros_(part.bias)
    for layer, block in enumerate(pooler.blocks, start=1):
        assert isinstance(block, SelfBlock)
        for linear in (block.attn.proj, block.mlp.fc2):
            linear.weight.div_(math.sqrt(2 * layer))
    pooler.cross_attention_block.mlp.fc2.weight.div_(math.sqrt(2 * max(1, len(pooler.blocks))))


def probe_loss(logits: dict[ActionPart, Tensor], classes_B3: Tensor) -> Tensor:
    """Return the scalar sum of the focal losses of part -> logits (B, C) against the columns (long) of the parts."""
    losses = [focal_loss(logits[part], classes_B3[:, place]) for place, part in enumerate(PARTS)]
    return torch.stack(losses).sum()


def focal_loss(logits_BC: Tensor, classes_B: Tensor) -> Tensor:
    """Return the sigmoid focal loss of every column against one true class, summed over clips and columns.

    Source: arXiv 1708.02002, with the constants of V-JEPA 2's evaluation.
    """
    logits_BC = logits_BC.float()
    true_BC = F.one_hot(classes_B, logits_BC.shape[1]).to(logits_BC.dtype)
    signed_BC = logits_BC * (2 * true_BC - 1)  # its sigmoid: probability of the true value of the column
    weight_BC = 0.25 * true_BC + 0.75 * (1 - true_BC)
    return -(weight_BC * torch.sigmoid(-signed_BC) ** 2 * F.logsigmoid(signed_BC)).sum()
