"""Rows whose steps are decoded together: a hidden Markov model, and plain rows with "+ Viterbi".

Transitions are counted on the training takes. A + Viterbi row keeps its plain row's scores of every step and differs in
the decoding alone, so that exact plans (MSeq) of one model are compared with exact plans, not with independent steps. T
and the weight of the transitions are chosen on dev for each row, seed and horizon (evaluation/headroom.py). The
hidden Markov model is fitted in closed form and nothing of it is chosen; it is a control, not a floor.
Source: docs/decisions/methods.md. Axes: B windows of one horizon H, V labels, E text space.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from trajpilot_core.methods.base import Answers, Method, RowStyle
from trajpilot_core.methods.predictors import ENDPOINT_TRAJ, NO_TRAJ, ORACLE
from trajpilot_core.methods.retrieved import KNN_LABELS, POOL_MEAN, mean_plan, vote_answer, votes

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.methods.predictors import PlanOf
    from trajpilot_core.methods.sequences import Shortlist

    ScoresOf = Callable[[WindowBatch], Callable[[slice], Tensor]]
    """Windows -> a function that returns the scores of all labels, (b, H, V), for a slice of them."""

SUFFIX = "_viterbi"


def by_hmm(batch: "WindowBatch", *, moving: bool) -> Answers:
    """Answer with the hidden Markov model: both ends are recognised by features, `moving` by head motion as well."""
    from trajpilot_core.methods.sequences import hmm_answers

    return hmm_answers(batch.view.data, batch.segments, batch.joint(), moving=moving)


class Plain(NamedTuple):
    """A row whose scores are decoded together."""

    method: Method
    kind: Literal["cosine", "vote"]
    scores_of: "ScoresOf"


def plan_scores(plan_of: "PlanOf") -> "ScoresOf":
    """Return the scores of all labels under a row's (B, H, P) plan, each step by itself."""

    def scores_of(batch: "WindowBatch") -> "Callable[[slice], Tensor]":
        plan_BHP = plan_of(batch)
        return lambda rows: batch.view.readout.scores(plan_BHP[rows])

    return scores_of


def vote_scores(batch: "WindowBatch") -> "Callable[[slice], Tensor]":
    """Return the log of the votes of kNN-labels, to which the label frequencies add the share of one candidate."""
    votes_BHV, n = votes(batch), batch.ready().config.candidates
    frequent_V = batch.joint().fitted.moves.frequent
    return lambda rows: ((n * votes_BHV[rows] + frequent_V) / (n + 1)).log()


PLAIN: Mapping[str, Plain] = {
    plain.method.id + SUFFIX: plain
    for plain in (
        Plain(NO_TRAJ, "cosine", plan_scores(lambda batch: batch.fallback)),
        Plain(ENDPOINT_TRAJ, "cosine", plan_scores(lambda batch: batch.endpoint_plan)),
        Plain(ORACLE, "cosine", plan_scores(lambda batch: batch.true_plan)),
        Plain(POOL_MEAN, "cosine", plan_scores(mean_plan)),
        Plain(KNN_LABELS, "vote", vote_scores),
    )
}
"""Row -> the row that it decodes together."""


def shortlist(batch: "WindowBatch", row: str) -> "Shortlist":
    """Return the most probable labels of a row's plain row."""
    from trajpilot_core.methods.sequences import shortlisted

    keep = batch.joint().config.shortlist
    return shortlisted(batch.segments, batch.view.data.read_bank, keep, PLAIN[row].scores_of(batch))


def _joint_answer(batch: "WindowBatch", row: str) -> Answers:
    """Answer as a + Viterbi row; where there is no vote it repeats its plain row."""
    from trajpilot_core.methods.sequences import instead, joint_answers

    sequences = batch.joint()
    answers = joint_answers(sequences.fitted, shortlist(batch, row), sequences.knobs[row])
    if PLAIN[row].kind == "cosine":
        return answers
    return instead(answers, vote_answer(batch), batch.candidates().found.valid.any(1))


LIGHT, DARK = "#6a3d9a", "#dda6f5"
"""Colours of + Viterbi rows, so that they differ from their plain rows, whose marks they have."""


def _decoded_together(row: str) -> Method:
    """Return the row of a plain one: it sees the same and has the same bound."""
    plain = PLAIN[row].method
    return Method(
        id=row,
        name=f"{plain.name} + Viterbi",
        knows=f"as {plain.name}; its steps are decoded together, with the transitions of the training takes",
        sees=plain.sees,
        role="ablation",
        models=plain.models,
        answer=partial(_joint_answer, row=row),
        against={plain.id: ""},
        part_of=plain.id,
        style=RowStyle(plain.style.mark, LIGHT, DARK, "4 2 1 2", width=1.5),
    )


ROWS: list[Method] = [_decoded_together(row) for row in PLAIN]
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
