"""The gate-then-rank scorer: does any retrieved trajectory beat the fallback, and which one."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.training import Ablation, ScorerConfig


class ScorerShape(NamedTuple):
    """Widths that follow from the data."""

    query: int
    """Q: pooled features of the given ends, then their latents, each E wide."""
    embed: int
    """E, the text space."""
    max_mids: int
    """M, middle steps of the longest horizon."""
    classes: int = 0
    """V of a class head, with log probabilities as plans; 0: plans are embeddings (models/readout.py)."""
    ends: int = 2
    """Given ends: Start and Goal; 1: Start alone."""

    @property
    def plan(self) -> int:
        """P, width of a step of a plan."""
        return self.classes or self.embed


class ScorerInputs(NamedTuple):
    """Inputs of the scorer for B queries. Middle steps past a query's horizon are zero and do not count."""

    query: Tensor
    fallback: Tensor
    """Middle steps that no_traj predicts."""
    plans: Tensor
    """Middle steps that each candidate's roll-out predicts."""
    latents: Tensor
    """The candidates' middle trajectory latents."""
    labels: Tensor
    """Text embeddings of the candidates' middle labels."""
    valid: Tensor
    """bool: true where a candidate exists."""
    n_mids: Tensor
    """long: middle steps of the horizon, H - 2."""


class GateThenRankScorer(nn.Module):
    """Read the query, the fallback plan and K candidate plans as K + 2 tokens; return one gate logit and K rank scores.

    Shapes: B queries, K candidates, M middle steps (padded), E text space, P width of a plan's step, Q query width, D
    width. Candidates carry no position, so permuting them permutes the ranks and leaves the gate. An ablated one lacks
    the layers that read the candidates' labels (`no_labels`), or their trajectories and the plans under them
    (`no_motion`). Source: paper, 3.5 and appendix on the scorer; docs/decisions/scorer.md.
    """

    def __init__(self, config: ScorerConfig, shape: ScorerShape, ablation: Ablation | None = None) -> None:
        super().__init__()
        width = config.width
        n_latent = shape.ends * shape.embed
        self.feature_norm, self.latent_norm = nn.LayerNorm(shape.query - n_latent), nn.LayerNorm(n_latent)
        self.query_in = nn.Linear(shape.query, width)
        self.plan_mean = nn.Linear(shape.plan, width)
        self.plan_flat = nn.Linear(shape.max_mids * shape.plan, width)
        self.latent_in = None if ablation == "no_motion" else nn.Linear(shape.embed, width)
        self.label_in = None if ablation == "no_labels" else nn.Linear(shape.embed, width)
        self.horizon = nn.Embedding(shape.max_mids + 1, width)
        self.role = nn.Parameter(0.02 * torch.randn(3, width))
        layer = nn.TransformerEncoderLayer(
            width, config.heads, 4 * width, config.dropout, F.gelu, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, config.layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.dropout = nn.Dropout(config.dropout)
        self.gate = nn.Linear(width, 1)
        self.rank = nn.Linear(width, 1)

    def forward(self, inputs: ScorerInputs) -> tuple[Tensor, Tensor]:
        """Return gate logits (B,) and rank scores (B, K), -inf where there is no candidate."""
        n_mids_B1, candidate_BKD = inputs.n_mids[:, None], self.role[2]
        if self.latent_in is not None:
            candidate_BKD = candidate_BKD + self._plan(inputs.plans, n_mids_B1)
            candidate_BKD = candidate_BKD + self.latent_in(_mean_mids(inputs.latents, n_mids_B1))
        if self.label_in is not None:
            candidate_BKD = candidate_BKD + self.label_in(_mean_mids(inputs.labels, n_mids_B1))
        fallback_BD = self._plan(inputs.fallback, inputs.n_mids) + self.role[1]
        query_BD = self.query_in(self.normalise(inputs.query)) + self.role[0]
        tokens_BTD = torch.cat([query_BD[:, None], fallback_BD[:, None], candidate_BKD], dim=1)
        tokens_BTD = self.dropout(tokens_BTD + self.horizon(inputs.n_mids)[:, None])
        absent_BT = F.pad(~inputs.valid, (2, 0), value=False)
        out_BTD = self.blocks(tokens_BTD, src_key_padding_mask=absent_BT)
        rank_BK = self.rank(out_BTD[:, 2:])[..., 0].masked_fill(~inputs.valid, -torch.inf)
        return self.gate(out_BTD[:, 0])[:, 0], rank_BK

    def normalise(self, query_BQ: Tensor) -> Tensor:
        """Normalise features and endpoint latents of (B, Q) separately: unit vectors would vanish in a joint norm."""
        n_features = self.feature_norm.normalized_shape[0]
        features, latents = query_BQ[:, :n_features], query_BQ[:, n_features:]
        return torch.cat([self.feature_norm(features), self.latent_norm(latents)], dim=1)

    def _plan(self, plan_xMP: Tensor, n_mids_x: Tensor) -> Tensor:
        """Project plans (..., M, P) to (..., D): their mean over the real steps and all steps in order."""
        flat: Tensor = self.plan_flat(plan_xMP.flatten(-2)) + self.plan_mean(_mean_mids(plan_xMP, n_mids_x))
        return flat


def _mean_mids(steps_xME: Tensor, n_mids_x: Tensor) -> Tensor:
    """Average (..., M, E) over the first `n_mids` steps; the others are zero."""
    return steps_xME.sum(-2) / n_mids_x[..., None].to(steps_xME.dtype)
