"""The random search for recipes of trainings: its space, its budget, and the rows of its table.

Reasons: docs/decisions/training.md.
"""

from typing import Literal

from pydantic import Field, JsonValue

from schemas.base import Record

SearchedRow = Literal["alignment", "predictor", "scorer", "attention"]
"""Stage whose recipe is searched; the three predictors share one, and so do the variants of retrieval attention."""


class SearchSpace(Record):
    """Values that a trial draws from, each with equal probability; empty: as the recipe has it."""

    lr: tuple[float, ...] = (3e-4, 1e-3, 2e-3, 4e-3)
    """Peak rate."""
    batch: tuple[int, ...] = (64, 128, 256, 512)
    """Samples per step."""
    weight_decay: tuple[float, ...] = (0.01, 0.05, 0.3, 1.0)
    """On matrices."""
    warmup: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2)
    """Share of the steps."""
    width: tuple[int, ...] = (64, 96, 128, 192)
    """The hidden width keeps its proportion."""
    dropout: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3)
    """In the blocks."""
    temperature: tuple[float, ...] = ()
    """Initial value."""
    infonce_weight: tuple[float, ...] = ()
    """lambda."""
    mixed_horizons: tuple[bool, ...] = ()
    """Batches of one horizon, or of all."""


class SearchConfig(Record):
    """One search per learned row, seeded; fixed before any trial was run."""

    fixed_on: str = Field("2026-11-22", pattern=r"^\d{4}-\d{2}-\d{2}$")
    """Date on which these values were fixed."""
    seed: int = Field(20261122, ge=0)
    """Of the trials."""
    trials: int = Field(12, ge=1)
    """The first is the recipe as it stands, with the epochs that its time allows."""
    minutes: float = Field(4.0, gt=0)
    """Time of one training of a trial, on one thread, by the cost model."""
    flops_per_s: float = Field(3e10, gt=0)
    """Arithmetic of one thread that the cost model assumes, the same on every machine, so that epochs are
    (docs/decisions/training.md)."""
    step_s: float = Field(0.015, ge=0)
    """Seconds of a step, whatever its size, that the cost model assumes."""
    most_epochs: int = Field(60, ge=1)
    """Epochs of the fastest trial."""
    predictor: SearchSpace = SearchSpace(
        temperature=(0.05, 0.07, 0.1, 0.2), infonce_weight=(0.2, 0.5, 1.0, 2.0), mixed_horizons=(False, True)
    )
    alignment: SearchSpace = SearchSpace(width=(16, 32, 64, 128), temperature=(0.05, 0.07, 0.1, 0.2))
    scorer: SearchSpace = SearchSpace(width=(32, 64, 96, 128))
    attention: SearchSpace = SearchSpace(
        width=(48, 64, 96, 128),
        temperature=(0.05, 0.07, 0.1, 0.2),
        infonce_weight=(0.2, 0.5, 1.0, 2.0),
        mixed_horizons=(False, True),
    )


class TrialRow(Record):
    """One trial of a search: what was drawn, what it may cost and took, and its best scores, 0 to 1."""

    number: int
    settings: dict[str, JsonValue]
    """Path in the stage's configuration -> value; empty for the recipe as it stands."""
    epochs: int
    key: str
    """Of the stage's output."""
    modelled_s: float
    """Seconds of one training by the cost model."""
    took_s: float
    """Seconds of all trainings of the trial where they were computed."""
    dev: dict[str, float]
    """Model of the chain `final`, mean over seeds -> dev score of the epoch that was kept."""
    train: dict[str, float]
    """Likewise -> train score of the same epoch."""

    @property
    def mean_dev(self) -> float:
        """Mean over the models: what the choice is made by."""
        return sum(self.dev.values()) / len(self.dev)

    @property
    def mean_train(self) -> float:
        """Mean over the models."""
        return sum(self.train.values()) / max(1, len(self.train))
