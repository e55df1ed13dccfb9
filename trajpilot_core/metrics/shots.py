"""Metrics of the outcome of shots: made or missed, from one probability a shot.

Shapes: n shots, B weightings of them. Source: paper, appendix on basketball; docs/decisions/outcome.md.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.events import OutcomeMetric
from trajpilot_core.arrays import Array, Mask

MADE_FROM = 0.5
"""Least probability at which a shot is predicted as made."""


@dataclass(frozen=True)
class ShotMetric:
    """One column of the table of shots."""

    id: OutcomeMetric
    name: str
    """As printed."""
    description: str
    values: Callable[[Array, Mask, Array], Array]
    """(p (n,), made (n,), weights (B, n)) -> (B,) figures in percent; NaN where undefined."""


def recall(p_n: Array, made_n: Mask, weight_Bn: Array, of: Mask) -> Array:
    """Return (B,) percent of the shots `of` (n,) whose outcome is right, where one half or more means made."""
    right_n: NDArray[np.bool_] = (p_n >= MADE_FROM) == made_n
    weight_Bx = weight_Bn[:, of]
    with np.errstate(invalid="ignore"):
        return 100 * np.asarray((weight_Bx @ right_n[of].astype(np.float64)) / weight_Bx.sum(axis=1))


def balanced(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) means of both recalls."""
    return np.asarray(np.mean([recall(p_n, made_n, weight_Bn, of) for of in (made_n, ~made_n)], axis=0))


def auc(p_n: Array, made_n: Mask, weight_Bn: Array) -> Array:
    """Return (B,) probabilities that a made shot has a higher p than a missed one, ties half; NaN without one of each.

    `weight_Bn` is how often each of the n shots counts.
    """
    hit, miss = p_n[made_n][:, None], p_n[~made_n][None]
    above = (hit > miss) + 0.5 * (hit == miss)
    of_made, of_missed = weight_Bn[:, made_n], weight_Bn[:, ~made_n]
    with np.errstate(invalid="ignore"):
        return np.asarray(((of_made @ above) * of_missed).sum(axis=1) / (of_made.sum(axis=1) * of_missed.sum(axis=1)))


SHOT_METRICS: dict[OutcomeMetric, ShotMetric] = {
    spec.id: spec
    for spec in (
        ShotMetric(
            "accuracy",
            "Outcome Acc.",
            "shots whose outcome is right",
            lambda p, made, w: recall(p, made, w, np.ones_like(made)),
        ),
        ShotMetric("balanced", "Balanced Acc.", "mean of both recalls", balanced),
        ShotMetric(
            "made", "Made Rec.", "made shots whose outcome is right", lambda p, made, w: recall(p, made, w, made)
        ),
        ShotMetric(
            "missed", "Miss Rec.", "missed shots whose outcome is right", lambda p, made, w: recall(p, made, w, ~made)
        ),
        ShotMetric(
            "auc", "AUC", "a made shot is given the higher probability", lambda p, made, w: 100 * auc(p, made, w)
        ),
    )
}
"""In the order of the table. The first four are the paper's columns."""
