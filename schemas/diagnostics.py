"""Settings of the stage `diagnostics`."""

from pydantic import Field

from schemas.base import Record


class DiagnosticsConfig(Record):
    """Distances between features, and approach to the goal. Source of all: docs/decisions/diagnostics.md."""

    pairs: int = Field(20_000, ge=1)
    """Segments of a split that are drawn, each for at most one pair of every kind."""
    far_steps: int = Field(5, ge=2)
    """Far segments of one take lie at least this many places apart."""
    train_windows: int = Field(2_000, ge=1)
    """Training windows of each horizon that are drawn for the approach to the goal. Source: paper, its appendix."""
    bootstrap: int = Field(2_000, ge=100)
    """Resamples of takes."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of the intervals."""
    seed: int = 0
    """Of the draws and the resamples."""
