"""The table of pose sources: settings of its stage, and its rows. Source: docs/decisions/poses.md."""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.closed import ClosedDecodingConfig
from schemas.training import PredictorConfig, WithPredictor

PoseMetric = Literal["mid", "full"]
"""Share of right labels among the middle steps of a window, and among all; mean over windows of all horizons."""
POSE_METRICS: tuple[PoseMetric, ...] = ("mid", "full")
"""Both, in the order of the table."""
POSE_MODELS = ("files", "video", "both", "both_equal", "none")
"""Predictors that are trained for a seed, by their head motion: `both` has every window twice and so twice the steps,
`both_equal` as many steps as the others; `none` is given no trajectories."""


class PoseSourcesConfig(WithPredictor):
    """Predictors that are trained on one source of head motion and asked with another. Source: paper, its section on
    RGB-only poses."""

    is_asked: bool = False
    """A run makes this table, and nothing else of planning: `video_motions` names the second source."""
    margin: float = Field(2.0, gt=0)
    """Points within which poses from video serve as well. Source: docs/decisions/poses.md."""
    predictor: PredictorConfig | None = None
    """Of every row; set by the pipeline."""
    decoding: ClosedDecodingConfig | None = None
    """Of class heads; set by the pipeline."""
    bootstrap: int = Field(10_000, ge=100)
    """Resamples of takes; set by the pipeline, as for every evaluation."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of the intervals; set by the pipeline."""
    seed: int = 0
    """Of the resamples; set by the pipeline."""


class PoseScore(Record):
    """One figure of one row, or of its difference to another on the same windows, in percent."""

    sources: tuple[str, ...]
    """Where the head motion of the stages `trajectories` and `video_motions` came from, as their tables say."""
    row: str
    """Named after them (`evaluation.pose_rows.pose_rows`)."""
    against: str | None
    """Row that is subtracted; None: none."""
    seed: int | None
    """None: mean over the seeds."""
    metric: PoseMetric
    value: float
    low: float
    """Of the interval over takes; infinite where too few takes allow none."""
    high: float
    n_windows: int
    n_takes: int
