"""Top-1: the middle motion of the nearest retrieved window, always (paper, appendix)."""

from dataclasses import replace
from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch


def answer(batch: "WindowBatch") -> Answers:
    """Predict under the motion of the first candidate."""
    from trajpilot_core.methods.plans import rank_plan, with_ends

    found = batch.candidates().found
    answers = rank_plan(with_ends(found, found.plans[:, 0]), batch.view, batch.segments)
    return replace(answers, window=found.window[:, 0])


METHOD = Method(
    id="top1",
    name="Top-1",
    knows="the middle motion of the nearest candidate, always",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=("traj", "no_traj"),
    answer=answer,
    against={"endpoint_traj": ""},
    follows="nearest retrieved",
    in_gallery=True,
    style=RowStyle("triangle", "#7a6212", "#cdb45a", dash="5 4"),
)
