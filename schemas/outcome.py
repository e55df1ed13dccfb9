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
"""Rows that are built, in the order of the table."""
OutcomeMetric = Literal["accuracy", "balanced", "made", "missed", "auc"]
"""Share of right outcomes, mean of both recalls, recall of made and of missed shots, area under the ROC curve."""


class OutcomeConfig(WithScorer):
    """Made or missed: a head on the causal predictor, and a scorer of retrieved head motion. Source: paper, appendix on
    basketball; D 39, D 43."""

    utility: tuple[float, float] = (0.1, 1.0)
    """Weights of log p(what happened) and of being right: what the scorer ranks candidates by."""
    train: TrainConfig = TrainConfig(epochs=80, patience=None, batch=64, lr=3e-4, weight_decay=1e-4)
    """Of predictor and head, all epochs; the last is kept. Source: paper."""
    probe_heads: int = Field(16, ge=1)
    """Of every attention of the probe, a divisor of the features' width. Source: V-JEPA 2, as in ProbeConfig."""
    probe_blocks: int = Field(3, ge=1)
    """Of self-attention before its query reads the tokens. Source: V-JEPA 2; the paper says nothing."""
    shuffle_seed: int = 0
    """Permutes the head motion of the candidates in the control row."""
    bootstrap: int = Field(10_000, ge=100)
    """Resamples of takes; set by the pipeline, as for every evaluation."""
    confidence: float = Field(0.95, gt=0.5, lt=1)
    """Level of all intervals; set by the pipeline."""
    seed: int = 0
    """Of the resamples; set by the pipeline."""
    predictor: PredictorConfig | None = None
    """Sizes of the predictor, and the weights of another run with which it begins; set by the pipeline."""
    scorer: ScorerConfig | None = None
    """Retrieval and the scorer; set by the pipeline."""


class ShotAnswer(Record):
    """What one row says of one test shot."""

    shot_id: str
    take_id: str
    row: OutcomeRow
    seed: int
    p_made: float
    """The shot counts as made from one half on."""
    is_made: bool
    """The truth."""
    gate: float | None
    """Probability that a candidate beats the fallback; None where the row has no gate."""
    opened: bool | None
    candidate: str | None
    """Training shot whose head motion was used; None for the fallback and for rows without retrieval."""


class ShotScore(Record):
    """One figure of one row on the test shots, in percent."""

    row: OutcomeRow
    seed: int | None
    """None: mean over the seeds."""
    metric: OutcomeMetric
    value: float
    low: float
    """Of the interval over takes; infinite where too few takes allow none."""
    high: float
    wilson_low: float | None
    """Of Wilson's interval, which takes the shots for independent; None where the figure is no share of shots."""
    wilson_high: float | None
    n_right: int | None
    """Shots that the share counts; None likewise."""
    n_shots: int
    """Shots that it is a share of."""
    n_takes: int


class ShotContrast(Record):
    """One row against another on the same test shots."""

    row: OutcomeRow
    against: OutcomeRow
    seed: int | None
    """None: mean over the seeds, without McNemar's test."""
    difference: float
    """Of the accuracies, in points."""
    low: float
    """Of the interval over takes, paired."""
    high: float
    only_row: int | None
    """Shots that only the row has right."""
    only_against: int | None
    p_value: float | None
    """Of McNemar's exact test, two-sided."""
    n_shots: int
    n_takes: int
