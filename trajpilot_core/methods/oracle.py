"""Oracle: the predictor under the window's own true head motion, middle included (paper, 4). A condition, no bound."""

from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch


def plan(batch: "WindowBatch") -> "Tensor":
    """Return (B, H, P): what is predicted under the windows' own motion."""
    return batch.true_plan


def answer(batch: "WindowBatch") -> Answers:
    """Rank the labels by `plan`."""
    from trajpilot_core.methods.plans import rank_plan

    return rank_plan(plan(batch), batch.view, batch.segments)


METHOD = Method(
    id="oracle",
    name="Oracle",
    knows="its own true head motion, middle included: a condition, not an upper bound",
    sees="all_motion",
    ceiling="oracle",
    role="main",
    models=("traj",),
    answer=answer,
    against={"endpoint_traj": ""},
    in_gallery=True,
    style=RowStyle("diamond", "#009e73", "#2fcf9f"),
)
