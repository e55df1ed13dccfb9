"""Rows that rank labels by one plan of a predictor: No-Traj, Endpoint-Traj, Oracle, Shuffled (paper, 4), and controls.

They differ in the head motion that the predictor is given. Every other row is compared with No-Traj; Oracle is a
condition, not an upper bound. The controls take the transition prior of class heads away, or the class scores of the
middle; they are absent without class heads. Goal-dropout twins measure what anticipation's schedule changes for
planning; they are absent in runs without twins (`predictor.twin_goal_dropout`; D 42). Source of both: paper, 4.3 and
its appendix on closed-vocabulary adaptation; docs/decisions/closed-vocabulary.md.
Axes: B windows of one horizon H, P width of a plan.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from trajpilot_core.data.cross_fitting import twin_of
from trajpilot_core.methods.base import REFERENCE, Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.retrieval.bank import ChainView

    PlanOf = Callable[[WindowBatch], Tensor]
    """Windows -> their plans, (B, H, P)."""
    ViewOf = Callable[[WindowBatch], ChainView | None]
    """Windows -> the models that answer them; None where the run has not trained these."""


def ranked_by(
    plan_of: "PlanOf", view_of: "ViewOf" = lambda batch: batch.view
) -> "Callable[[WindowBatch], Answers | None]":
    """Return the answer function of a row that ranks the labels of every step by a plan."""

    def answer(batch: "WindowBatch") -> Answers | None:
        from trajpilot_core.methods.plans import rank_plan

        view = view_of(batch)
        return None if view is None else rank_plan(plan_of(batch.under(view)), view, batch.segments)

    return answer


def _shuffled_answer(batch: "WindowBatch") -> Answers | None:
    """Predict with the middle motion of the donors (D 40)."""
    from trajpilot_core.methods.plans import rank_plan, shuffled_plan

    if batch.donors is None:
        return None
    return rank_plan(shuffled_plan(batch.view, batch.segments, batch.donors), batch.view, batch.segments)


NO_TRAJ = Method(
    id=REFERENCE,
    name="No-Traj",
    knows="no trajectory at all",
    sees="ends",
    role="main",
    models=("no_traj",),
    answer=ranked_by(lambda batch: batch.fallback),
    in_gallery=True,
    plans=3,
    style=RowStyle("circle", "#5b6470", "#a9b2be", dash="2 2.5"),
)
ENDPOINT_TRAJ = Method(
    id="endpoint_traj",
    name="Endpoint-Traj",
    knows="its own head motion during Start and Goal, none between",
    sees="end_motion",
    role="main",
    models=("endpoint_traj",),
    answer=ranked_by(lambda batch: batch.endpoint_plan),
    in_gallery=True,
    plans=2,
    style=RowStyle("triangle", "#c47f00", "#f0b429", dash="7 3"),
)
ORACLE = Method(
    id="oracle",
    name="Oracle",
    knows="its own true head motion, middle included: a condition, not an upper bound",
    sees="all_motion",
    role="main",
    models=("traj",),
    answer=ranked_by(lambda batch: batch.true_plan),
    against={"endpoint_traj": ""},
    in_gallery=True,
    style=RowStyle("diamond", "#009e73", "#2fcf9f"),
)
SHUFFLED = Method(
    id="shuffled",
    name="Shuffled",
    knows="endpoint motion, and the middle motion of another test window",
    sees="end_motion",
    role="control",
    models=("traj",),
    answer=_shuffled_answer,
    against={"endpoint_traj": "", "oracle": ""},
    style=RowStyle("diamond", "#6f4fc0", "#a68cf0"),
)


def under_transitions(plan_of: "PlanOf", weigh: Callable[[float], float]) -> "Callable[[WindowBatch], Answers | None]":
    """Return the answer function of a row of class scores under transitions of another weight; none without classes.

    Masks are kept.
    """

    def answer(batch: "WindowBatch") -> Answers | None:
        from trajpilot_core.methods.plans import rank_plan
        from trajpilot_core.models.readout import ClassReadout

        readout = batch.view.readout
        if not isinstance(readout, ClassReadout):
            return None
        view = replace(batch.view, readout=replace(readout, weight=weigh(readout.weight)))
        return rank_plan(plan_of(batch), view, batch.segments)

    return answer


def ends_of_fallback(batch: "WindowBatch") -> "Tensor":
    """Return No-Traj's class scores of Start and Goal, (B, H, P); those of the middles are 0."""
    ends_BHP = batch.fallback.clone()
    ends_BHP[:, 1:-1] = 0.0
    return ends_BHP


WITHOUT_PRIOR = Method(
    id="no_traj_no_prior",
    name="No-Traj, no prior",
    knows="as No-Traj; every step by itself, without the transition prior",
    sees="ends",
    role="ablation",
    models=("no_traj",),
    answer=under_transitions(lambda batch: batch.fallback, lambda _: 0.0),
    part_of="no_traj",
    style=RowStyle("circle", "#2a7f9e", "#7fc8e8", dash="2 3"),
)
GRAPH_ONLY = Method(
    id="graph_only",
    name="Graph-only",
    knows="No-Traj's class scores of Start and Goal, and transitions of the training takes in between",
    sees="ends",
    role="control",
    models=("no_traj",),
    answer=under_transitions(ends_of_fallback, lambda weight: weight or 1.0),  # 1 where the recipe has none
    style=RowStyle("square", "#8a6d3b", "#e8d3a8", dash="6 3"),
)
NO_TRAJ_GOAL_DROPOUT = replace(
    NO_TRAJ,
    id="no_traj_goal_dropout",
    name="No-Traj, goal dropout",
    knows="no trajectory at all; trained with goals masked at random, the goal given",
    role="ablation",
    models=(twin_of("no_traj"),),
    answer=ranked_by(lambda batch: batch.fallback, lambda batch: batch.goal_dropout),
    part_of=NO_TRAJ.id,
    in_gallery=False,
    plans=None,
    style=RowStyle("circle", "#7a5c7e", "#c3a3c8", dash="6 2 1 2"),
)
ORACLE_GOAL_DROPOUT = replace(
    ORACLE,
    id="oracle_goal_dropout",
    name="Oracle, goal dropout",
    knows="as Oracle; trained with goals masked at random, the goal given",
    role="ablation",
    models=(twin_of("traj"),),
    answer=ranked_by(lambda batch: batch.true_plan, lambda batch: batch.goal_dropout),
    against={ORACLE.id: "what goal dropout changes where the goal is given"},
    part_of=ORACLE.id,
    in_gallery=False,
    style=RowStyle("diamond", "#5f7d3a", "#a9c77e", dash="6 2 1 2"),
)
