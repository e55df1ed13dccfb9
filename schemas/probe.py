"""Settings and results of the attentive probe for action anticipation on EPIC-KITCHENS-100.

"V-JEPA 2" is github.com/facebookresearch/vjepa2 at c2963a47, configuration of its anticipation on EPIC-KITCHENS-100.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.features import FeatureConfig

ProbeTokens = Literal["temporal", "full"]


class ProbeConfig(Record):
    """A probe on the tokens of the frozen encoder: a grid of trainings per seed, from which dev selects one. Source:
    docs/decisions/epic-probe.md."""

    tokens: ProbeTokens | None = None
    """temporal: what the stage features keeps, one token a tubelet: another protocol than the published one, for small
    machines; full: every patch, and the patches of the tubelet that is predicted, encoded from the videos in every
    epoch (docs/scale.md states what it takes); None: no probe."""
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    """Seeds, one probe each; the published one has one seed."""
    heads: int = Field(16, ge=1)
    """Heads of every attention. Source: V-JEPA 2."""
    blocks: int = Field(3, ge=1)
    """Self-attention blocks before the queries read the tokens. Source: V-JEPA 2, whose 4 includes the reading."""
    rates: tuple[float, ...] = Field((5e-3, 3e-3, 1e-3, 3e-4, 1e-4), min_length=1)
    """Learning rates of the grid. Source: V-JEPA 2."""
    decays: tuple[float, ...] = Field((1e-4, 1e-3, 1e-2, 1e-1), min_length=1)
    """Weight decays of the grid, on all parameters. Source: V-JEPA 2."""
    epochs: int = Field(20, ge=1)
    """Source: V-JEPA 2."""
    batch: int = Field(128, ge=1)
    """Clips per step. Source: V-JEPA 2."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the training; auto as in the other trainings. V-JEPA 2 has bf16."""
    gap_s: float | None = Field(1.0, ge=0)
    """Stop with an error at a clip whose last frame is less than this many seconds before its action; None: the table
    lists how many there are. Source: protocol of the corpus."""
    bootstrap: int = Field(2_000, ge=100)
    """Resamples of videos, for the intervals."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of the intervals."""
    random_gap_s: tuple[float, float] | None = (0.25, 1.75)
    """With `full`, seconds between the end of a training clip and its action, uniformly sampled in every epoch; None:
    as in the features. Source: V-JEPA 2."""
    crop_scale: tuple[float, float] | None = (0.08, 1.0)
    """With `full`, share of the picture that a training clip shows, uniformly sampled; None: all of it. Source:
    V-JEPA 2."""
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Width by height of that part. Source: V-JEPA 2."""
    mirror_share: float = Field(0.5, ge=0, le=1)
    """With `full`, share of training clips that are mirrored, sampled in every epoch. Source: V-JEPA 2."""
    erase_share: float = Field(0.25, ge=0, le=1)
    """With `full`, share of training clips in which noise replaces a rectangle, the same in every frame.
    Source: V-JEPA 2."""
    clips_at_once: int = Field(2, ge=1)
    """With `full`, clips whose tokens a probe reads at once: affects memory, not results."""
    encoder: FeatureConfig | None = None
    """How clips are encoded if tokens are `full`; set by the pipeline."""

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        for name in ("random_gap_s", "crop_scale", "crop_ratio"):
            bounds = getattr(self, name)
            if bounds is not None and not 0 < bounds[0] <= bounds[1]:
                raise ValueError(f"{name} is {bounds}; give a smaller and a larger number above 0")
        return self


class ProbeScore(Record):
    """One value of the table of anticipation with its interval over videos."""

    row: str
    """probe, or a floor."""
    seed: int
    metric: str
    """Id of a record of trajpilot_core/metrics/epic_kitchens.py."""
    subset: Literal["overall", "unseen", "tail"]
    space: Literal["challenge", "trained_pairs"]
    value: float | None
    """Percent; None if the set has no clip."""
    low: float
    """Lower end of the interval; infinite if there are too few videos."""
    high: float
    n_clips: int
    n_classes: int
    """Classes that occur."""
    n_takes: int
    trial: str
    """Selected training of the grid, the same for all metrics; empty for a floor."""


class ProbeAnswer(Record):
    """Answer of one row for one test clip."""

    segment_id: str
    take_id: str
    row: str
    seed: int
    verbs: tuple[int, ...]
    """Best five, descending logit, ties to the earlier column; -1 fills a small head."""
    nouns: tuple[int, ...]
    action_verbs: tuple[int, ...]
    """Verbs of the best five pairs."""
    action_nouns: tuple[int, ...]
    """Nouns of the same pairs."""
