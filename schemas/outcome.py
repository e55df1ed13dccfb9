"""The outcome of a shot: settings of its stage, and the rows of its tables. Source: docs/decisions/outcome.md."""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.training import PredictorConfig, ScorerConfig, TrainConfig, WithScorer

OutcomeRow = Literal[
    "no_traj",
    "attentive_probe",
    "scorer",
    "oracle",
    "endpoint_traj",
    "permuted_candidates",
    "knn_outcome",
    "majority",
]
"""Rows, in the order of the table."""
OutcomeMetric = Literal["accuracy", "balanced", "made", "missed", "auc"]
"""Accuracy, balanced accuracy, recall of made and of missed shots, area under the ROC curve."""


class OutcomeConfig(WithScorer):
    """Made or missed: a head on the causal predictor, and a scorer of retrieved head motion. Source: paper, appendix on
    basketball; D 39, D 43."""

    utility: tuple[float, float] = (0.1, 1.0)
    """Weights of log p(true outcome) and of a correct answer in the utility by which the scorer ranks candidates."""
    train: TrainConfig = TrainConfig(epochs=80, patience=None, batch=64, lr=3e-4, weight_decay=1e-4)
    """Training of predictor and head; all epochs are run and the last is kept. Source: paper."""
    probe_heads: int = Field(16, ge=1)
    """Heads of every attention of the probe, a divisor of the features' width. Source: V-JEPA 2, as in ProbeConfig."""
    probe_blocks: int = Field(3, ge=1)
    """Self-attention blocks before its query reads the tokens. Source: V-JEPA 2; the paper states none."""
    shuffle_seed: int = 0
    """Seed of the permutation of candidates' head motion in the control row."""
    bootstrap: int = Field(10_000, ge=100)
    """Resamples of takes; set by the pipeline, as for every evaluation."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of all intervals; set by the pipeline."""
    seed: int = 0
    """Seed of the resamples; set by the pipeline."""
    predictor: PredictorConfig | None = None
    """Sizes of the predictor, and the weights of another run that initialise it; set by the pipeline."""
    scorer: ScorerConfig | None = None
    """Retrieval and the scorer; set by the pipeline."""


class ShotAnswer(Record):
    """Answer of one row for one test shot."""

    shot_id: str
    take_id: str
    row: OutcomeRow
    seed: int
    p_made: float
    """The shot counts as made from 0.5 on."""
    is_made: bool
    """The truth."""
    gate: float | None
    """Probability that a candidate beats the fallback; None if the row has no gate."""
    opened: bool | None
    candidate: str | None
    """Training shot that provided the head motion; None for the fallback and for rows without retrieval."""


class ShotScore(Record):
    """One figure of one row on the test shots, in percent."""

    row: OutcomeRow
    seed: int | None
    """None: mean over the seeds."""
    metric: OutcomeMetric
    value: float
    low: float
    """Lower end of the interval over takes; infinite if there are too few takes."""
    high: float
    wilson_low: float | None
    """Lower end of Wilson's interval, which treats shots as independent; None if the metric is not a share of shots."""
    wilson_high: float | None
    n_right: int | None
    """Numerator of the share; None likewise."""
    n_shots: int
    """Denominator of the share."""
    n_takes: int


class ShotContrast(Record):
    """One row against another on the same test shots."""

    row: OutcomeRow
    against: OutcomeRow
    seed: int | None
    """None: mean over the seeds, without McNemar's test."""
    difference: float
    """Difference of the accuracies, in points."""
    low: float
    """Lower end of the paired interval over takes."""
    high: float
    only_row: int | None
    """Shots that only the row answers correctly."""
    only_against: int | None
    p_value: float | None
    """p-value of McNemar's exact test, two-sided."""
    n_shots: int
    n_takes: int
