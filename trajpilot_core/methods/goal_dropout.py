"""No-Traj and Oracle by goal-dropout twins, the goal given: what anticipation's schedule changes for planning.

Rows of runs that have trained the twins (`predictor.twin_goal_dropout`); elsewhere they are absent. Source: paper, 4.3
and its appendix on closed-vocabulary adaptation; docs/decisions/closed-vocabulary.md, D 42.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from trajpilot_core.data.cross_fitting import twin_of
from trajpilot_core.methods import no_traj, oracle
from trajpilot_core.methods.base import Answers, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch


def without_motion(batch: "WindowBatch") -> Answers | None:
    """Answer as No-Traj does, by its twin."""
    from trajpilot_core.methods.plans import rank_plan
    from trajpilot_core.retrieval.candidates import fallback_plans

    view = batch.goal_dropout
    return None if view is None else rank_plan(fallback_plans(view, batch.segments), view, batch.segments)


def with_all_motion(batch: "WindowBatch") -> Answers | None:
    """Answer as Oracle does, by the twin of its predictor."""
    from trajpilot_core.methods.plans import own_plan, rank_plan

    view = batch.goal_dropout
    if view is None:
        return None
    plan_BHP = own_plan(view, view.models.traj, batch.segments, with_mids=True)
    return rank_plan(plan_BHP, view, batch.segments)


NO_TRAJ = replace(
    no_traj.METHOD,
    id="no_traj_goal_dropout",
    name="No-Traj, goal dropout",
    knows="no trajectory at all; trained with goals masked at random, the goal given",
    role="ablation",
    models=(twin_of("no_traj"),),
    answer=without_motion,
    part_of=no_traj.METHOD.id,
    in_gallery=False,
    plans=None,
    style=RowStyle("circle", "#7a5c7e", "#c3a3c8", dash="6 2 1 2"),
)
ORACLE = replace(
    oracle.METHOD,
    id="oracle_goal_dropout",
    name="Oracle, goal dropout",
    knows="as Oracle; trained with goals masked at random, the goal given",
    role="ablation",
    models=(twin_of("traj"),),
    answer=with_all_motion,
    against={oracle.METHOD.id: "what goal dropout changes where the goal is given"},
    part_of=oracle.METHOD.id,
    in_gallery=False,
    style=RowStyle("diamond", "#5f7d3a", "#a9c77e", dash="6 2 1 2"),
)
