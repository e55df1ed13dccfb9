"""Exact sequences: every step between Start and Goal right (MSeq), or every step (FSeq, SR); right steps of them.

The paper's closed tables print Mid mAcc as mAcc, its table of poses has both.
"""

import numpy as np

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.values import full_exact, mean_accuracy, mid_accuracy, mid_exact
from trajpilot_core.simworld.inference.bayes_optimal import Decisions


def mid_reached(labels: Codes, best: Decisions) -> Array:
    """Return MSeq of the best middles of (N, H) windows, (N,); one that is not proven the best counts as right."""
    whole = np.concatenate([labels[:, :1], best.mid, labels[:, -1:]], axis=1)
    return np.where(best.is_proven[:, 0], mid_exact(labels, whole), 100.0)


def full_reached(labels: Codes, best: Decisions) -> Array:
    """Return FSeq of the best sequences of (N, H) windows, (N,); one that is not proven the best counts as right."""
    return np.where(best.is_proven[:, 1], full_exact(labels, best.full), 100.0)


MSEQ = MetricSpec(
    id="MSeq",
    description="windows with every middle step right",
    values=lambda labels, decoded, _: mid_exact(labels, decoded),
    table="open",
    reads="sequence",
    at_most=("M@1",),
    reached=mid_reached,
    expected=lambda best: 100.0 * best.mid_chance,
)
FSEQ = MetricSpec(
    id="FSeq",
    description="windows with every step right",
    values=lambda labels, decoded, _: full_exact(labels, decoded),
    table="open",
    reads="sequence",
    at_most=("F@1", "MSeq"),
    reached=full_reached,
    expected=lambda best: 100.0 * best.full_chance,
)
SR = MetricSpec(
    id="SR",
    description="success rate: every step of the decoded sequence right (FSeq)",
    values=lambda labels, decoded, _: full_exact(labels, decoded),
    table="sequence",
    reads="sequence",
    at_most=("Mid mAcc", "Full mAcc", "mIoU"),
)
MID_MACC = MetricSpec(
    id="Mid mAcc",
    description="middle steps of the decoded sequence that are right",
    values=lambda labels, decoded, _: mid_accuracy(labels, decoded),
    table="sequence",
    reads="sequence",
)
FULL_MACC = MetricSpec(
    id="Full mAcc",
    description="all steps of the decoded sequence that are right, Start and Goal included",
    values=lambda labels, decoded, _: mean_accuracy(labels, decoded),
    table="sequence",
    reads="sequence",
)
