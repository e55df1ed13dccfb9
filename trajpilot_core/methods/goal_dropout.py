"""No-Traj and Oracle by goal-dropout twins, the goal given: what anticipation's schedule changes for planning.

Rows of runs that have trained the twins (`predictor.twin_goal_dropout`); elsewhere they are absent. Source: paper, 4.3
and its appendix on closed-vocabulary adaptation; docs/decisions/closed-vocabulary.md, D 42.
"""

from dataclasses import replace

from trajpilot_core.data.cross_fitting import twin_of
from trajpilot_core.methods import predictors
from trajpilot_core.methods.base import RowStyle
from trajpilot_core.methods.predictors import ranked_by

NO_TRAJ = replace(
    predictors.NO_TRAJ,
    id="no_traj_goal_dropout",
    name="No-Traj, goal dropout",
    knows="no trajectory at all; trained with goals masked at random, the goal given",
    role="ablation",
    models=(twin_of("no_traj"),),
    answer=ranked_by(lambda batch: batch.fallback, lambda batch: batch.goal_dropout),
    part_of=predictors.NO_TRAJ.id,
    in_gallery=False,
    plans=None,
    style=RowStyle("circle", "#7a5c7e", "#c3a3c8", dash="6 2 1 2"),
)
ORACLE = replace(
    predictors.ORACLE,
    id="oracle_goal_dropout",
    name="Oracle, goal dropout",
    knows="as Oracle; trained with goals masked at random, the goal given",
    role="ablation",
    models=(twin_of("traj"),),
    answer=ranked_by(lambda batch: batch.true_plan, lambda batch: batch.goal_dropout),
    against={predictors.ORACLE.id: "what goal dropout changes where the goal is given"},
    part_of=predictors.ORACLE.id,
    in_gallery=False,
    style=RowStyle("diamond", "#5f7d3a", "#a9c77e", dash="6 2 1 2"),
)
