"""What the checks of the evaluation look at."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from schemas.results import Judgement, Metric
from trajpilot_core.evaluation.prediction_arrays import Predictions
from trajpilot_core.evaluation.tables import Growth

FittedTakes = Mapping[str, Sequence[str]]
"""Chain -> ids of the takes that it was fitted on."""


@dataclass(frozen=True)
class CheckInputs:
    """Everything that the checks look at."""

    predictions: Predictions
    metrics: Sequence[Metric]
    take_split: Mapping[str, str]
    """Take id -> train, dev or test."""
    window_take: Mapping[str, str]
    """Window id -> take id, at least of every window that served as a candidate."""
    folds: Mapping[str, int]
    """Training take -> fold; -1 marks the takes fitted in the cheap mode."""
    trained: Sequence[Judgement] = field(default_factory=tuple)
    """One judgement per model, `trained: <chain>/<model>, seed <seed>`."""
    growth: Growth | None = None
    """Oracle's lead over No-Traj, longest horizon against shortest."""
    fitted: Mapping[str, FittedTakes | None] = field(default_factory=dict)
    """Model entry -> what its metadata say it was fitted on; None where they say nothing."""
    has_class_heads: bool = False
    """Plans are class scores, which are decoded under a transition prior."""
    over_classes: bool = False
    """Answers are classes of labels."""
