"""Metrics of the outcome of shots: made or missed, from one probability a shot.

Shapes: n shots, B weightings of them. Source: paper, appendix on basketball; docs/decisions/outcome.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.events import OutcomeMetric
from trajpilot_core.arrays import Array, Mask

ShotFigures = Callable[[Array, Mask, Array], Array]
"""(p (n,), made (n,), weights (B, n)) -> (B,) figures in percent; NaN where undefined."""
MADE_FROM = 0.5
"""Least probability at which a shot is predicted as made."""


@dataclass(frozen=True)
class ShotMetric:
    """One column of the table of shots."""

    id: OutcomeMetric
    name: str
    """As printed."""
    description: str
    values: ShotFigures
    is_count: bool = True
    """It is a share of shots, with a count and Wilson's interval."""


def share(right_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) weighted shares of right answers, of (n,) shots."""
    with np.errstate(invalid="ignore"):
        return np.asarray((weight_Bn @ right_n.astype(np.float64)) / weight_Bn.sum(axis=1))


def recall(p_n: Array, made_n: Mask, weight_Bn: Array, *, of: Mask) -> Array:
    """Return (B,) percent of the shots `of` (n,) whose outcome is right, where one half or more means made."""
    right_n: NDArray[np.bool_] = (p_n >= MADE_FROM) == made_n
    return 100 * share(right_n[of], weight_Bn[:, of])


def accuracy(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) percent of all shots whose outcome is right."""
    return recall(p_n, made_n, weight_Bn, of=np.ones(len(made_n), dtype=bool))


def made_recall(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) percent of the made shots whose outcome is right."""
    return recall(p_n, made_n, weight_Bn, of=made_n)


def missed_recall(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) percent of the missed shots whose outcome is right."""
    return recall(p_n, made_n, weight_Bn, of=~made_n)


def balanced(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) means of both recalls."""
    both = [made_recall(p_n, made_n, weight_Bn), missed_recall(p_n, made_n, weight_Bn)]
    return np.asarray(np.mean(both, axis=0))


def auc(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) probabilities that a made shot has a higher p than a missed one, ties half; NaN without one of each.

    Args:
        p_n: (n,) probabilities of made.
        made_n: (n,) truths.
        weight_Bn: (B, n) how often each shot counts.
    """
    hit, miss = p_n[made_n][:, None], p_n[~made_n][None]
    above = (hit > miss) + 0.5 * (hit == miss)
    of_made, of_missed = weight_Bn[:, made_n], weight_Bn[:, ~made_n]
    with np.errstate(invalid="ignore"):
        return np.asarray(((of_made @ above) * of_missed).sum(axis=1) / (of_made.sum(axis=1) * of_missed.sum(axis=1)))


def percent_auc(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return `auc` (B,) in percent."""
    return 100 * auc(p_n, made_n, weight_Bn)


SHOT_METRICS: dict[OutcomeMetric, ShotMetric] = {
    spec.id: spec
    for spec in (
        ShotMetric("accuracy", "Outcome Acc.", "shots whose outcome is right", accuracy),
        ShotMetric("balanced", "Balanced Acc.", "mean of both recalls", balanced, is_count=False),
        ShotMetric("made", "Made Rec.", "made shots whose outcome is right", made_recall),
        ShotMetric("missed", "Miss Rec.", "missed shots whose outcome is right", missed_recall),
        ShotMetric("auc", "AUC", "a made shot is given the higher probability", percent_auc, is_count=False),
    )
}
"""In the order of the table. The first four are the paper's columns."""
