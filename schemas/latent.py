"""Planning in the space of the video encoder: settings of the stages `latent` and `latent_plans`, and their tables.

Source: paper, 1 (first table) and 3.1 to 3.2; docs/decisions/latent-planning.md.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.training import TrainConfig

LatentVariant = Literal[
    "next_none", "next_text", "next_trajectory", "next_both", "plan_none", "plan_trajectory", "latent_head"
]
"""What is trained: predictors of the next latent under four conditions, planners without and with head motion, and the
classifier that reads labels from true latents."""
LATENT_VARIANTS: tuple[LatentVariant, ...] = (
    "next_none",
    "next_text",
    "next_trajectory",
    "next_both",
    "plan_none",
    "plan_trajectory",
    "latent_head",
)
"""All of them."""
Condition = Literal["copy", "none", "text", "trajectory", "text_and_trajectory", "shuffled_text", "shuffled_trajectory"]
"""Rows of the table of conditions: the current latent itself, four trainings, and two inputs of the last of these that
belong to another example."""
Energy = Literal["last_mid", "goal_step"]
"""What is compared with the goal's latent: the prediction of the last middle step, as the paper's text has it, or that
of the goal's own step by the same model while the goal is hidden from it."""
ENERGIES: tuple[Energy, ...] = ("last_mid", "goal_step")


class SearchConfig(Record):
    """The cross-entropy method over head motion. Source: docs/decisions/latent-planning.md."""

    samples: int = Field(256, ge=2)
    """Candidates of an iteration."""
    iterations: int = Field(10, ge=1)
    """Times that the proposal is refined."""
    elites: int = Field(26, ge=2)
    """Best candidates that the next proposal is made from: a tenth."""
    momentum: float = Field(0.15, ge=0, lt=1)
    """Share of the old proposal in the new one, mean and deviation alike. Source: V-JEPA 2-AC, its demonstration."""
    variance: float = Field(0.95, gt=0, le=1)
    """Share of the variance of training head motion that the directions of the search keep."""


class LatentConfig(Record):
    """Predictors of latents, the classifier on them, the search, and what is measured of its energy. Source:
    docs/decisions/latent-planning.md."""

    is_asked: bool = False
    """A run trains these models, and its tables have their rows."""
    target: Literal["pooled", "temporal"] = "pooled"
    """What is predicted of a step: the mean of its tokens, or each of them, where `features.tokens` is temporal."""
    seeds: tuple[int, ...] = Field((0, 1, 2), min_length=1)
    """One model of each kind per seed."""
    width: int = Field(768, ge=16)
    """Of the predictors."""
    layers: int = Field(10, ge=1)
    """Source: paper, 3.2."""
    heads: int = Field(12, ge=1)
    """Of every attention."""
    hidden: int = Field(3072, ge=16)
    """Width of hidden layers."""
    dropout: float = Field(0.1, ge=0, lt=1)
    """On what a block adds."""
    goal_dropout: float = Field(0.5, gt=0, lt=1)
    """Share of the training windows whose goal is hidden: only there the goal's step is a target."""
    train: TrainConfig = TrainConfig()
    """Of the predictors; the epoch with the least l1 on dev is kept."""
    head: TrainConfig = TrainConfig(lr=1e-3, precision="fp32")
    """Of the classifier; the epoch with the most right on dev is kept."""
    search: SearchConfig = SearchConfig()
    candidates: int = Field(64, ge=1)
    """Retrieved head motions that CEM-bank chooses from. Source: paper, K."""
    key_width: int = Field(64, ge=1)
    """Principal directions of an end's feature that retrieval compares."""
    correlation_windows: int = Field(2_000, ge=2)
    """Training windows of each horizon of which energy and accuracy are compared. Source: paper, its appendix."""
    bootstrap: int = Field(2_000, ge=100)
    """Resamples of takes."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of the intervals."""
    seed: int = 0
    """Of shuffles, random trajectories, the noise of the search, and resamples."""


class ConditionScore(Record):
    """The l1 distance of predicted and true next latents under one condition, one step ahead."""

    condition: Condition
    split: Literal["dev", "test"]
    seed: int | None
    """None: the mean over the seeds."""
    l1: float
    """Mean over components of layer-normalised latents."""
    gain: float
    """Less that of `none`; negative is better."""
    low: float
    """Of the gain's interval over takes; infinite where too few takes allow none."""
    high: float
    n_pairs: int
    n_takes: int


class EnergyCorrelation(Record):
    """How the energy of a plan goes with its step accuracy, over drawn training windows of one horizon."""

    seed: int
    horizon: int
    energy: Energy
    distance: Literal["l1", "cosine"]
    motion: Literal["bank", "own"]
    """Whose head motion the plan follows: that of a random window of the bank, or the window's own."""
    pearson: float | None
    """None where one of the two never varies."""
    explained: float | None
    """Its square, percent."""
    deviation: float
    """Standard deviation of the energy over the windows."""
    n_windows: int


class EnergySpread(Record):
    """How far energies of one window's candidates lie apart: an energy that hardly varies cannot choose."""

    seed: int
    horizon: int
    energy: Literal["last_mid", "goal_step", "goal_step_seen"]
    """The last one sees the goal that it predicts: it is there to be found flat, no row reads it."""
    spread: float
    """Standard deviation over eight real motions, as a share of the mean distance between goals of different windows;
    averaged over windows."""
    n_windows: int
