"""Rows of the result tables: predictions, metrics, training curves."""

from typing import Literal

from schemas.base import Record

Variant = Literal[
    "no_traj", "endpoint_traj", "scorer", "oracle",
    "top1", "knn_labels", "pool_mean", "shuffled", "majority", "previous",
]  # fmt: skip


class Prediction(Record):
    """One position of one window as one row of the table predicted it."""

    window_id: str
    take_id: str
    horizon: int
    variant: Variant
    seed: int
    position: int
    label_id: str
    """The truth."""
    decoded_id: str
    """The sequence that the row stands for (top-1 per step unless it decodes jointly)."""
    top_ids: tuple[str, ...]
    """Best five, descending score, ties by smaller id."""
    top_scores: tuple[float, ...]
    gate: float | None
    """Probability that a retrieved candidate beats the fallback; None where the row has no gate."""
    opened: bool | None
    candidate: str | None
    """Window of the bank whose trajectory was used; None for the fallback and for rows without retrieval."""


class Metric(Record):
    """One number of the tables with its interval over takes."""

    corpus: str
    variant: str
    reference: str | None
    """Set for a paired difference: value = variant - reference."""
    horizon: int | None
    """None for a figure over all horizons; `pooling` says how."""
    pooling: Literal["none", "plain", "sample"]
    metric: str
    seed: int | None
    """None when averaged over seeds."""
    value: float
    low: float
    high: float
    n_takes: int
    n_windows: int


class CurvePoint(Record):
    """One point of a training curve."""

    model: str
    seed: int
    epoch: int
    split: Literal["train", "dev"]
    quantity: str
    value: float


class Judgement(Record):
    """One check that the evaluation makes of itself."""

    check: str
    verdict: Literal["holds", "fails", "undertrained", "not run"]
    detail: str
