"""No-Traj: the predictor that was trained without any trajectory (paper, 4). Every other row is compared with it."""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import REFERENCE, Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch


def plan(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, P): the fallback."""
    return batch.fallback


def answer(batch: "WindowBatch") -> Answers:
    """Rank the labels by the fallback's embeddings."""
    from trajpilot_core.methods.plans import rank_plan

    return rank_plan(plan(batch), batch.view, batch.segments)


METHOD = Method(
    id=REFERENCE,
    name="No-Traj",
    knows="no trajectory at all",
    sees="ends",
    ceiling="no_traj",
    role="main",
    models=("no_traj",),
    answer=answer,
    in_gallery=True,
    plans=3,
    style=RowStyle("circle", "#5b6470", "#a9b2be", dash="2 2.5"),
)
