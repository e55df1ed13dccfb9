"""Shuffled: the window's own endpoint motion, and the middle motion of another test window (D 40)."""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch


def answer(batch: "WindowBatch") -> Answers | None:
    """Predict under the donors' middles; None where the windows have no donors."""
    from trajpilot_core.methods.plans import rank_plan, shuffled_plan

    if batch.donors is None:
        return None
    plan = shuffled_plan(batch.view, batch.segments, batch.donors)
    return rank_plan(plan, batch.view, batch.segments)


METHOD = Method(
    id="shuffled",
    name="Shuffled",
    knows="endpoint motion, and the middle motion of another test window",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=("traj",),
    answer=answer,
    against={"endpoint_traj": "", "oracle": ""},
    style=RowStyle("diamond", "#6f4fc0", "#a68cf0"),
)
