"""Recall and exact sequence of all steps after Start, the place of a masked Goal included: rows without a goal alone.

The paper prints the steps between Start and Goal for anticipation, too (M@1, M@5, MSeq; its "Future"), and all steps
(F@1, F@5, FSeq; its "Full"). This is the other reading of its text. Source: docs/decisions/anticipation.md, D 48.
"""

from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.values import full_exact, step_recall

A1 = MetricSpec(
    id="A@1",
    description="steps after Start right at the first answer, the place of the Goal included",
    values=lambda labels, _, rankings: step_recall(labels[:, 1:], rankings[:, 1:], 1),
    table="anticipation",
    at_most=("A@5",),
)
A5 = MetricSpec(
    id="A@5",
    description="steps after Start with the truth among five answers, the place of the Goal included",
    values=lambda labels, _, rankings: step_recall(labels[:, 1:], rankings[:, 1:], 5),
    table="anticipation",
)
ASEQ = MetricSpec(
    id="ASeq",
    description="windows with every step after Start right, the place of the Goal included",
    values=lambda labels, decoded, _: full_exact(labels[:, 1:], decoded[:, 1:]),
    table="anticipation",
    reads="sequence",
    at_most=("A@1", "MSeq"),
)
