"""Recall and exact sequence of all steps after Start, the place of a masked Goal included: rows without a goal alone.

The paper prints the steps between Start and Goal for anticipation, too (M@1, M@5, MSeq; its "Future"), and all steps
(F@1, F@5, FSeq; its "Full"). This is the other reading of its text. Source: docs/decisions/anticipation.md, D 48.
"""

import numpy as np

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.values import full_exact, step_recall
from trajpilot_core.simworld.inference.bayes_optimal import Decisions


def after_reached(labels: Codes, best: Decisions) -> Array:
    """Return ASeq of the best sequences after Start of (N, H) windows, (N,); one not proven the best counts as right.

    Raises:
        AssertionError: the decisions are those of one who is given a goal.
    """
    assert best.after is not None
    return np.where(best.is_proven[:, 2], full_exact(labels[:, 1:], best.after), 100.0)


def after_expected(best: Decisions) -> Array:
    """Return what these sequences get on average, percent of shape (N,); raises as `after_reached` does."""
    assert best.after_chance is not None
    return 100.0 * best.after_chance


A1 = MetricSpec(
    id="A@1",
    description="steps after Start right at the first answer, the place of the Goal included",
    values=lambda labels, _, rankings: step_recall(labels[:, 1:], rankings[:, 1:], 1),
    table="anticipation",
    at_most=("A@5",),
    reached=lambda labels, best: step_recall(labels[:, 1:], best.ranking[:, 1:], 1),
    expected=lambda best: 100.0 * best.chance[:, 1:, 0].mean(1),
)
A5 = MetricSpec(
    id="A@5",
    description="steps after Start with the truth among five answers, the place of the Goal included",
    values=lambda labels, _, rankings: step_recall(labels[:, 1:], rankings[:, 1:], 5),
    table="anticipation",
    reached=lambda labels, best: step_recall(labels[:, 1:], best.ranking[:, 1:], 5),
    expected=lambda best: 100.0 * best.chance.sum(axis=2)[:, 1:].mean(1),
)
ASEQ = MetricSpec(
    id="ASeq",
    description="windows with every step after Start right, the place of the Goal included",
    values=lambda labels, decoded, _: full_exact(labels[:, 1:], decoded[:, 1:]),
    table="anticipation",
    reads="sequence",
    at_most=("A@1", "MSeq"),
    reached=after_reached,
    expected=after_expected,
)
