"""A first-order hidden Markov model of labels: what looks, frequencies and transitions reach without any training.

A control and not a floor: it is fitted, in closed form, and nothing of it is chosen (docs/decisions/methods.md).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch


def answer(*, moving: bool) -> "Callable[[WindowBatch], Answers]":
    """Return how the model answers that recognises the ends by looks, and by head motion too where `moving`."""

    def answers(batch: "WindowBatch") -> Answers:
        from trajpilot_core.methods.sequences import hmm_answers

        return hmm_answers(batch.view.data, batch.segments, batch.joint(), moving=moving)

    return answers


HMM = Method(
    id="hmm",
    name="HMM",
    knows="no motion; which label follows which in the training takes, and a linear discriminant of both ends",
    sees="ends",
    ceiling="no_traj",
    role="control",
    models=(),
    answer=answer(moving=False),
    style=RowStyle("circle", "#3d7a2a", "#6fdc52", dash="1 3"),
)
HMM_MOTION = Method(
    id="hmm_motion",
    name="HMM, motion",
    knows="as HMM; the discriminant also reads the head motion of both ends",
    sees="end_motion",
    ceiling="endpoint_traj",
    role="control",
    models=(),
    answer=answer(moving=True),
    against={"endpoint_traj": ""},
    in_gallery=True,
    style=RowStyle("triangle", "#1f5e4d", "#5fc0a3", dash="1 3"),
)
