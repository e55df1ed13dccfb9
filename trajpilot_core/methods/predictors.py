"""No-Traj, Endpoint-Traj, Oracle and Shuffled: rows that rank labels by one plan of a predictor (paper, 4).

They differ in the head motion that the predictor is given. Every other row is compared with No-Traj; Oracle is a
condition, not an upper bound.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

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


def shuffled_answer(batch: "WindowBatch") -> Answers | None:
    """Predict with the middle motion of the donors (D 40); None where the windows have no donors."""
    from trajpilot_core.methods.plans import rank_plan, shuffled_plan

    if batch.donors is None:
        return None
    return rank_plan(shuffled_plan(batch.view, batch.segments, batch.donors), batch.view, batch.segments)


NO_TRAJ = Method(
    id=REFERENCE,
    name="No-Traj",
    knows="no trajectory at all",
    sees="ends",
    ceiling="no_traj",
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
    ceiling="endpoint_traj",
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
    ceiling="oracle",
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
    ceiling="endpoint_traj",
    role="control",
    models=("traj",),
    answer=shuffled_answer,
    against={"endpoint_traj": "", "oracle": ""},
    style=RowStyle("diamond", "#6f4fc0", "#a68cf0"),
)
