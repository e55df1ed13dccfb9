"""Retrieval attention: a causal predictor whose tokens read retrieved windows (docs/decisions/retrieval-attention.md).

Shapes: B windows of one horizon H, K neighbours of each, C tokens of a clip, D feature width, E text width, A width of
E_tau's states, W width of the model, T tokens of a window, S retrieved tokens and the null token, V labels.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from schemas.training import AttentionConfig, AttentionVariant
from trajpilot_core.models.blocks import Attention, ends_of, table
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape, structured_mask

ENDS = 2
"""Cosines of a neighbour: of Start and of Goal. That of both together is their mean, which a projection can make."""
PLACE_STD = 0.5
"""Of the places of retrieved tokens at the start of a training: about what a label adds to a token."""


class VariantInputs(NamedTuple):
    """What a variant is given; the rest is zero."""

    query_motion: bool
    retrieved_motion: bool
    retrieval: bool = True


GIVEN: Mapping[AttentionVariant, VariantInputs] = {
    "both": VariantInputs(query_motion=True, retrieved_motion=True),
    "query_motion": VariantInputs(query_motion=True, retrieved_motion=False),
    "retrieved_motion": VariantInputs(query_motion=False, retrieved_motion=True),
    "no_motion": VariantInputs(query_motion=False, retrieved_motion=False),
    "alone": VariantInputs(query_motion=True, retrieved_motion=False, retrieval=False),
}


class AttentionShape(NamedTuple):
    """Sizes that the data decide."""

    feature_width: int
    tokens: int
    text_width: int
    max_horizon: int
    state_width: int

    @property
    def planner(self) -> PredictorShape:
        """The sizes of the causal predictor in it."""
        return PredictorShape(*self[:4])

    def to_json(self) -> str:
        """Return the sizes as JSON, for what holds for all models of an entry."""
        return json.dumps(self._asdict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the sizes back."""
        return cls(**json.loads(text))


class QueryEnds(NamedTuple):
    """What is known of the two ends of B windows."""

    start: Tensor
    """(B, C, D) raw feature of the first segment."""
    goal: Tensor
    """(B, C, D) of the last one."""
    latents: Tensor
    """(B, 2, E) of E_tau; zeros mean no motion."""
    states: Tensor
    """(B, 2, A) that E_tau's head reads; zeros mean no motion."""


class RetrievedWindows(NamedTuple):
    """What was retrieved for B windows."""

    labels: Tensor
    """(B, K, H) long."""
    motion: tuple[Tensor, Tensor] | None
    """Latents (B, K, H, E) and states (B, K, H, A), zeros for none; None: of no window."""
    cosine: Tensor
    """(B, K, 2) of Start and of Goal with the window's own."""
    is_seen: Tensor
    """Bool (B, K): true where there is a neighbour that may be read."""


class Read(nn.Module):
    """One cross attention into the retrieved tokens, pre-norm, with a residual. At first it adds nothing."""

    def __init__(self, cfg: AttentionConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(cfg.width)
        self.attention = Attention(cfg.width, cfg.heads)
        self.dropout = nn.Dropout(cfg.dropout)
        nn.init.zeros_(self.attention.out.weight)
        nn.init.zeros_(self.attention.out.bias)

    def forward(self, x_BTW: Tensor, retrieved_BSW: Tensor, seen_BS: Tensor) -> Tensor:
        """Return (B, T, W). `seen_BS` is true where a retrieved token may be read; one of each window must be."""
        mask_BNTS = seen_BS[:, None, None].expand(-1, -1, x_BTW.shape[1], -1)
        found = self.attention(self.norm(x_BTW), self.attention.keys_values(retrieved_BSW), mask_BNTS)
        out: Tensor = x_BTW + self.dropout(found)
        return out


class RetrievalAttention(nn.Module):
    """Predict the text embedding of Start, every Mid and Goal from both clips, their motion and retrieved windows.

    Shapes as in the module. The buffers `cosine_mean` and `cosine_scale` (2,) standardise the cosines of neighbours.
    A retrieved token is a plain sum, without a norm: projections are made per label and not per token where they can.
    """

    cosine_mean: Tensor
    cosine_scale: Tensor

    def __init__(self, cfg: AttentionConfig, shape: AttentionShape) -> None:
        super().__init__()
        self.planner = CausalPredictor(cfg, shape.planner)
        self.end_state_in = nn.Linear(shape.state_width, cfg.width, bias=False)
        self.label_in = nn.Linear(shape.text_width, cfg.width)
        self.latent_in = nn.Linear(shape.text_width, cfg.width, bias=False)
        self.state_in = nn.Linear(shape.state_width, cfg.width, bias=False)
        self.cosine_in = nn.Linear(ENDS, cfg.width)
        self.from_start = nn.Parameter(torch.randn(shape.max_horizon, cfg.width) * PLACE_STD)
        self.from_goal = nn.Parameter(torch.randn(shape.max_horizon, cfg.width) * PLACE_STD)
        self.nothing = table(1, cfg.width)
        self.reads = nn.ModuleList(Read(cfg) for _ in range(cfg.reads))
        self.register_buffer("cosine_mean", torch.zeros(ENDS))
        self.register_buffer("cosine_scale", torch.ones(ENDS))

    def forward(self, ends: QueryEnds, retrieved: RetrievedWindows | None, bank_VE: Tensor, horizon: int) -> Tensor:
        """Return (B, H, E) float32 of unit norm: Start, Mid_1 .. Mid_M, Goal.

        Args:
            ends: of the windows.
            retrieved: their neighbours; None: the null token alone is read.
            bank_VE: text embeddings of all labels, unit norm.
            horizon: H, from 3 to the model's max_horizon.
        """
        planner = self.planner
        context_BTW = planner.context_tokens(ends.start, ends.goal, ends.latents, horizon)
        context_BTW = context_BTW + self.end_state_in(ends.states).repeat_interleave(planner.context // 2, dim=1)
        none_BME = ends.latents.new_zeros(len(ends.latents), horizon - 2, ends.latents.shape[2])
        x_BTW = torch.cat([context_BTW, planner.mid_tokens(none_BME, horizon)], dim=1)
        mask = structured_mask(planner.context, horizon - 2, device=x_BTW.device)
        retrieved_BSW, seen_BS = self.retrieved_tokens(retrieved, bank_VE, len(x_BTW))
        first = len(planner.blocks) - len(self.reads)
        for place, block in enumerate(planner.blocks):
            x_BTW, _ = block(x_BTW, mask)
            if place >= first:
                x_BTW = self.reads[place - first](x_BTW, retrieved_BSW, seen_BS)
        return planner.read_out(x_BTW)

    def retrieved_tokens(self, retrieved: RetrievedWindows | None, bank_VE: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Return the tokens that n windows may read, (n, S, W), the null token first, and where they may, bool (n, S).

        Args:
            retrieved: neighbours; None: there are none.
            bank_VE: text embeddings of all labels.
            n: B.
        """
        nothing_B1W = self.nothing.expand(n, -1, -1)
        always_B1 = torch.ones(n, 1, dtype=torch.bool, device=nothing_B1W.device)
        if retrieved is None:
            return nothing_B1W, always_B1
        label_VW = self.label_in(bank_VE * bank_VE.shape[1] ** 0.5)  # numbers of about 1, as those of the states
        token_BKHW = F.embedding(retrieved.labels, label_VW)
        if retrieved.motion is not None:
            latents_BKHE, states_BKHA = retrieved.motion
            scaled_WE = self.latent_in.weight * latents_BKHE.shape[-1] ** 0.5
            token_BKHW = token_BKHW + F.linear(latents_BKHE, scaled_WE)
            token_BKHW = token_BKHW + self.state_in(states_BKHA)
        horizon, dtype = retrieved.labels.shape[2], token_BKHW.dtype
        place_HW = self.from_start[:horizon] + self.from_goal[:horizon].flip(0)
        cosine_BKW = self.cosine_in((retrieved.cosine.float() - self.cosine_mean) / self.cosine_scale)
        token_BKHW = token_BKHW + cosine_BKW[:, :, None].to(dtype) + place_HW.to(dtype)
        seen_BS = torch.cat([always_B1, retrieved.is_seen.repeat_interleave(horizon, dim=1)], dim=1)
        return torch.cat([nothing_B1W.to(dtype), token_BKHW.flatten(1, 2)], dim=1), seen_BS


class SegmentTables(NamedTuple):
    """What all segments of a corpus bring; windows are rows of these."""

    features: Tensor
    """(segments, C, D) float16, raw."""
    latents: Tensor
    """(segments, E)."""
    states: Tensor
    """(segments, A)."""
    labels: Tensor
    """(segments,) long."""


class FoundWindows(NamedTuple):
    """B windows and their neighbours, as rows of `SegmentTables`."""

    segments: Tensor
    """(B, H) long."""
    pool: Tensor
    """(B, K, H) long; any segments where there is no neighbour."""
    cosine: Tensor
    """(B, K, 2), finite."""
    is_there: Tensor
    """Bool (B, K)."""


class ShownInputs(NamedTuple):
    """Of which windows the motion is shown, and of which the neighbours, each bool (B,)."""

    motion: Tensor
    retrieval: Tensor


def inputs_of(
    tables: SegmentTables, found: FoundWindows, variant: AttentionVariant, shown: ShownInputs | None = None
) -> tuple[QueryEnds, RetrievedWindows | None]:
    """Return what a variant is given of B windows; what it is not given is not looked up.

    Args:
        tables: of the corpus.
        found: the windows.
        variant: decides what is null.
        shown: false windows lose their motion, or their neighbours. None: all are shown.
    """
    given, ends_B2 = GIVEN[variant], ends_of(found.segments)
    moves_B11 = torch.ones(len(ends_B2), 1, 1, device=ends_B2.device)
    if shown is not None:
        moves_B11 = moves_B11 * shown.motion[:, None, None]
    of_ends = moves_B11 if given.query_motion else torch.zeros_like(moves_B11)
    start, goal = tables.features[ends_B2[:, 0]], tables.features[ends_B2[:, 1]]
    ends = QueryEnds(start, goal, tables.latents[ends_B2] * of_ends, tables.states[ends_B2] * of_ends)
    if not given.retrieval:
        return ends, None
    motion = None
    if given.retrieved_motion:
        latents, states = F.embedding(found.pool, tables.latents), F.embedding(found.pool, tables.states)
        motion = (latents, states) if shown is None else (latents * moves_B11[..., None], states * moves_B11[..., None])
    is_seen = found.is_there if shown is None else found.is_there & shown.retrieval[:, None]
    return ends, RetrievedWindows(tables.labels[found.pool], motion, found.cosine, is_seen)
