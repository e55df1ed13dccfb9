"""Endpoint-Traj: the predictor that was trained with the motion of Start and Goal alone (paper, 4)."""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch


def plan(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, P): what is predicted under the windows' own endpoint motion.

    Raises:
        StoreError: the chain has no such checkpoint; only the final one has it.
    """
    return batch.endpoint_plan


def answer(batch: "WindowBatch") -> Answers:
    """Rank the labels by `plan`."""
    from trajpilot_core.methods.plans import rank_plan

    return rank_plan(plan(batch), batch.view, batch.segments)


METHOD = Method(
    id="endpoint_traj",
    name="Endpoint-Traj",
    knows="its own head motion during Start and Goal, none between",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="main",
    models=("endpoint_traj",),
    answer=answer,
    in_gallery=True,
    plans=2,
    style=RowStyle("triangle", "#c47f00", "#f0b429", dash="7 3"),
)
