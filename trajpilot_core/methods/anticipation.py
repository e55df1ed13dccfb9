"""Rows to which no goal is given, and their floor (paper, 4.4; docs/decisions/anticipation.md).

Rows of runs whose goal-dropout twins anticipate (`predictor.anticipates`); elsewhere they are absent. The predictors
that were trained with every goal also answer without one: the gain of the twins is measured against them.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from trajpilot_core.data.cross_fitting import SCORER_NO_GOAL, twin_of
from trajpilot_core.methods import predictors
from trajpilot_core.methods.base import Answers, Gate, Method, RowStyle
from trajpilot_core.methods.predictors import ranked_by
from trajpilot_core.methods.retrieved import majority_answers
from trajpilot_core.methods.scorer import scorer_answers

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.retrieval.bank import ChainView

PREFIX = "anticipation_"
WITHOUT_DROPOUT = "_no_dropout"
PREDICTORS = ("traj", "no_traj", "folds/traj", "folds/no_traj")
"""Predictors whose twins are behind the Scorer without a goal."""


def twin_view(batch: "WindowBatch") -> "ChainView | None":
    """Return the chain with its goal-dropout twins, no goal given; None where nothing anticipates."""
    return None if batch.anticipation is None else batch.anticipation.view


def start_view(batch: "WindowBatch") -> "ChainView | None":
    """Return `twin_view` where it has a twin that was trained with the motion of the ends alone."""
    view = twin_view(batch)
    return None if view is None or view.models.endpoint_traj is None else view


def original_view(batch: "WindowBatch") -> "ChainView | None":
    """Return the chain that was trained with every goal, no goal given; None where nothing anticipates."""
    from trajpilot_core.retrieval.bank import without_goal

    return None if batch.anticipation is None else without_goal(batch.view)


def by_scorer(batch: "WindowBatch") -> Answers | None:
    """Answer as the Scorer does, from windows with a similar Start, given the motion of Start alone."""
    models = batch.anticipation
    if models is None or models.scorer is None or models.found is None or models.queries is None:
        return None
    return scorer_answers(models.view, models.found, models.queries, models.scorer)


NO_TRAJ = Method(
    id=f"{PREFIX}no_traj",
    name="No-Traj, no goal",
    knows="Start's clip alone: neither a goal nor a trajectory; trained with goals masked at random",
    sees="start",
    role="anticipation",
    models=(twin_of("no_traj"),),
    answer=ranked_by(lambda batch: batch.fallback, twin_view),
    against={
        predictors.NO_TRAJ_GOAL_DROPOUT.id: "what is lost without a goal",
        f"{PREFIX}majority": "beyond the label alone",
    },
    style=RowStyle("circle", "#5b6470", "#a9b2be", dash="2 2.5"),
)
ENDPOINT_TRAJ = Method(
    id=f"{PREFIX}endpoint_traj",
    name="Endpoint-Traj, no goal",
    knows="Start's clip and its own head motion during Start, nothing that is retrieved",
    sees="start_motion",
    role="anticipation",
    models=(twin_of("endpoint_traj"),),
    answer=ranked_by(lambda batch: batch.endpoint_plan, start_view),
    against={NO_TRAJ.id: "what the motion of Start adds"},
    style=RowStyle("triangle", "#9a6400", "#d9a441", dash="2 2.5"),
)
ORACLE = Method(
    id=f"{PREFIX}oracle",
    name="Oracle, no goal",
    knows="Start's clip, and the true head motion of Start and of every middle step: a condition, not an upper bound",
    sees="motion_to_goal",
    role="anticipation",
    models=(twin_of("traj"),),
    answer=ranked_by(lambda batch: batch.true_plan, twin_view),
    against={predictors.ORACLE_GOAL_DROPOUT.id: "what is lost without a goal", NO_TRAJ.id: "what the motion adds"},
    style=RowStyle("diamond", "#009e73", "#2fcf9f"),
)
SCORER = Method(
    id=f"{PREFIX}scorer",
    name="Scorer, no goal",
    knows="Start's clip and head motion, and the middle motion of one retrieved training window that begins alike, or "
    "the No-Traj answer without a goal where the gate stays closed",
    sees="start_motion",
    role="anticipation",
    models=(*map(twin_of, PREDICTORS), SCORER_NO_GOAL),
    answer=by_scorer,
    against={
        NO_TRAJ.id: "the whole gain",
        ENDPOINT_TRAJ.id: "beyond the motion of Start",
        ORACLE.id: "what knowing the true motion would add",
    },
    gate=Gate("a retrieved trajectory was trusted", fallback=NO_TRAJ.id),
    follows="chosen by the scorer without a goal",
    style=RowStyle("square", "#0072b2", "#56b4e9"),
)
NO_TRAJ_NO_DROPOUT = replace(
    NO_TRAJ,
    id=NO_TRAJ.id + WITHOUT_DROPOUT,
    name="No-Traj, no goal, no dropout",
    knows="Start's clip alone; trained with every goal, which is masked when it answers",
    models=("no_traj",),
    answer=ranked_by(lambda batch: batch.fallback, original_view),
    against={
        predictors.NO_TRAJ.id: "what is lost without a goal",
        NO_TRAJ.id: "what training without goal dropout costs",
    },
    part_of=NO_TRAJ.id,
    style=RowStyle("circle", "#7a5c7e", "#c3a3c8", dash="6 2 1 2"),
)
ORACLE_NO_DROPOUT = replace(
    ORACLE,
    id=ORACLE.id + WITHOUT_DROPOUT,
    name="Oracle, no goal, no dropout",
    knows="as Oracle without a goal; trained with every goal, which is masked when it answers",
    models=("traj",),
    answer=ranked_by(lambda batch: batch.true_plan, original_view),
    against={
        predictors.ORACLE.id: "what is lost without a goal",
        ORACLE.id: "what training without goal dropout costs",
    },
    part_of=ORACLE.id,
    style=RowStyle("diamond", "#5f7d3a", "#a9c77e", dash="6 2 1 2"),
)
MAJORITY = Method(
    id=f"{PREFIX}majority",
    name="Majority, no goal",
    knows="the most frequent training label; untrained floor",
    sees="start",
    role="anticipation",
    models=(),
    answer=lambda batch: None if batch.anticipation is None else majority_answers(batch),
    style=RowStyle("none", "#b4bac2", "#555d67", dash="1.5 3"),
)
ROWS = (NO_TRAJ, ENDPOINT_TRAJ, SCORER, ORACLE, NO_TRAJ_NO_DROPOUT, ORACLE_NO_DROPOUT, MAJORITY)
