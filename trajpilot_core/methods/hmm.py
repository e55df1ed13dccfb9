"""A hidden Markov model over labels: a control, fitted in closed form; nothing of it is chosen.

Transitions are counted on the training takes. Source: docs/decisions/methods.md.
"""

from functools import partial
from typing import TYPE_CHECKING

from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from trajpilot_core.methods.batch import WindowBatch


def by_hmm(batch: "WindowBatch", *, moving: bool) -> Answers:
    """Answer with the hidden Markov model: both ends are recognised by features, `moving` by head motion as well."""
    from trajpilot_core.methods.sequences import hmm_answers

    return hmm_answers(batch.view.data, batch.segments, batch.chain_of_labels(), moving=moving)


HMM = Method(
    id="hmm",
    name="HMM",
    knows="no motion; which label follows which in the training takes, and a linear discriminant of both ends",
    sees="ends",
    role="control",
    models=(),
    answer=partial(by_hmm, moving=False),
    style=RowStyle("circle", "#3d7a2a", "#6fdc52", dash="1 3"),
)
HMM_MOTION = Method(
    id="hmm_motion",
    name="HMM, motion",
    knows="as HMM; the discriminant also reads the head motion of both ends",
    sees="end_motion",
    role="control",
    models=(),
    answer=partial(by_hmm, moving=True),
    against={"endpoint_traj": ""},
    in_gallery=True,
    style=RowStyle("triangle", "#1f5e4d", "#5fc0a3", dash="1 3"),
)
