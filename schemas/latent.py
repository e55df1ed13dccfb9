"""Planning in the space of the video encoder: settings of the stages `latent` and `latent_plans`, and their tables.

Source: paper, 1 (first table) and 3.1 to 3.2; docs/decisions/latent-planning.md.
"""

from typing import Literal, get_args

from pydantic import Field

from schemas.base import Record
from schemas.training import IntervalConfig, TrainConfig

LatentVariant = Literal[
    "next_none", "next_text", "next_trajectory", "next_both", "plan_none", "plan_trajectory", "latent_head"
]
"""Models: predictors of the next latent under four conditions, planners without and with head motion, and the
classifier that predicts labels from true latents."""
LATENT_VARIANTS: tuple[LatentVariant, ...] = get_args(LatentVariant)
"""All of them."""
Condition = Literal["copy", "none", "text", "trajectory", "text_and_trajectory", "shuffled_text", "shuffled_trajectory"]
"""Rows of the table of conditions: a copy of the current latent, four trainings, and the last of these with one of its
inputs taken from another example."""
Energy = Literal["last_mid", "goal_step"]
"""What is compared with the goal's latent: the prediction of the last middle step, as in the paper's text, or the
prediction of the goal step by the same model with the goal hidden."""
ENERGIES: tuple[Energy, ...] = ("last_mid", "goal_step")


class SearchConfig(Record):
    """The cross-entropy method over head motion. Source: docs/decisions/latent-planning.md."""

    samples: int = Field(256, ge=2)
    """Candidates of an iteration."""
    iterations: int = Field(10, ge=1)
    """Refinements of the proposal."""
    elites: int = Field(26, ge=2)
    """Best candidates, from which the next proposal is computed: a tenth."""
    momentum: float = Field(0.15, ge=0, lt=1)
    """Share of the old proposal in the new one, mean and deviation alike. Source: V-JEPA 2-AC, its demonstration."""
    variance: float = Field(0.95, gt=0, le=1)
    """Share of the variance of training head motion kept by the search directions."""


class LatentConfig(IntervalConfig):
    """Predictors of latents, their classifier, the search, and the measurements of its energy. Source:
    docs/decisions/latent-planning.md."""

    is_asked: bool = False
    """Train these models and add their rows to the tables."""
    target: Literal["pooled", "temporal"] = "pooled"
    """Prediction target of a step: the mean of its tokens, or each token if `features.tokens` is temporal."""
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    """One model of each kind per seed."""
    width: int = Field(768, ge=16)
    """Width of the predictors."""
    layers: int = Field(10, ge=1)
    """Source: paper, 3.2."""
    heads: int = Field(12, ge=1)
    """Heads of every attention."""
    hidden: int = Field(3072, ge=16)
    """Width of hidden layers."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """Dropout on the residual branches."""
    goal_dropout: float = Field(0.5, gt=0, lt=1)
    """Share of training windows with a hidden goal: only there the goal step is a target."""
    train: TrainConfig = TrainConfig()
    """Training of the predictors; the epoch with the lowest l1 on dev is kept."""
    head: TrainConfig = TrainConfig(lr=1e-3, precision="fp32")
    """Training of the classifier; the epoch with the highest accuracy on dev is kept."""
    search: SearchConfig = SearchConfig()
    candidates: int = Field(64, ge=1)
    """Retrieved head motions among which CEM-bank chooses. Source: paper, K."""
    key_width: int = Field(64, ge=1)
    """Principal directions of an endpoint's feature that retrieval compares."""
    correlation_windows: int = Field(2_000, ge=2)
    """Training windows per horizon for the correlation of energy and accuracy. Source: paper, its appendix."""
    bootstrap: int = Field(2_000, ge=100)
    """Resamples of takes."""


class ConditionScore(Record):
    """The l1 distance of predicted and true next latents of test takes under one condition, mean over the seeds."""

    condition: Condition
    l1: float
    """Mean over components of layer-normalised latents."""
    gain: float
    """Difference to the l1 of `none`; negative is better."""
    low: float
    """Lower end of the gain's interval over takes; infinite if there are too few takes."""
    high: float
    n_pairs: int
    n_takes: int


class EnergyCorrelation(Record):
    """Correlation of a plan's energy with its step accuracy over sampled training windows of one horizon."""

    seed: int
    horizon: int
    energy: Energy
    distance: Literal["l1", "cosine"]
    motion: Literal["bank", "own"]
    """Head motion of the plan: that of a random window of the bank, or the window's own."""
    pearson: float | None
    """None if one of the two is constant."""
    explained: float | None
    """Its square, percent."""
    n_windows: int
