"""Recall of ranked answers: M@k over the steps between Start and Goal, F@k over all steps."""

from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.values import full_recall, mid_recall

M1 = MetricSpec(
    id="M@1",
    description="middle steps right at the first answer",
    values=lambda labels, _, rankings: mid_recall(labels, rankings, 1),
    table="open",
    at_most=("M@5",),
    reached=lambda labels, best: mid_recall(labels, best.ranking, 1),
    expected=lambda best: 100.0 * best.chance[:, 1:-1, 0].mean(1),
)
M5 = MetricSpec(
    id="M@5",
    description="middle steps with the truth among five answers",
    values=lambda labels, _, rankings: mid_recall(labels, rankings, 5),
    table="open",
    reached=lambda labels, best: mid_recall(labels, best.ranking, 5),
    expected=lambda best: 100.0 * best.chance.sum(axis=2)[:, 1:-1].mean(1),
)
F1 = MetricSpec(
    id="F@1",
    description="all steps right at the first answer, Start and Goal included",
    values=lambda labels, _, rankings: full_recall(labels, rankings, 1),
    table="open",
    at_most=("F@5",),
    reached=lambda labels, best: full_recall(labels, best.ranking, 1),
    expected=lambda best: 100.0 * best.chance[..., 0].mean(1),
)
F5 = MetricSpec(
    id="F@5",
    description="all steps with the truth among five answers",
    values=lambda labels, _, rankings: full_recall(labels, rankings, 5),
    table="open",
    reached=lambda labels, best: full_recall(labels, best.ranking, 5),
    expected=lambda best: 100.0 * best.chance.sum(axis=2).mean(1),
)
