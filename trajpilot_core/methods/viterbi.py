"""+ Viterbi: rows whose steps are decoded together, with the transitions of the training takes.

Each keeps what its plain row says of every step and differs in the decoding alone, so that exact plans (MSeq) of one
model are compared with exact plans, not with independent steps. T and the weight of the transitions are chosen on dev,
for each row, seed and horizon (evaluation/joint_decoding.py). Axes: B windows of one horizon H, V labels, E text space.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from trajpilot_core.methods import endpoint_traj, knn_labels, no_traj, oracle, pool_mean
from trajpilot_core.methods.base import Answers, Method, RowStyle

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.methods.sequences import Shortlist

    Score = Callable[[WindowBatch], Callable[[slice], Tensor]]
    """From the windows to what gives the scores of all labels, (b, H, V), for a slice of them."""

SUFFIX = "_viterbi"


class Plain(NamedTuple):
    """A row whose scores are decoded together."""

    method: Method
    kind: Literal["cosine", "vote"]
    score: "Score"


def by_plan(plan: "Callable[[WindowBatch], Tensor]") -> "Score":
    """Return the scores of all labels under a row's (B, H, P) plan, each step by itself."""

    def score(batch: "WindowBatch") -> "Callable[[slice], Tensor]":
        plan_BHP = plan(batch)
        return lambda rows: batch.view.readout.scores(plan_BHP[rows])

    return score


def by_votes(batch: "WindowBatch") -> "Callable[[slice], Tensor]":
    """Return the log of the votes of kNN-labels, to which the frequencies of all labels add one candidate's share."""
    votes_BHV, n = knn_labels.votes(batch), batch.ready().config.candidates
    frequent_V = batch.joint().fitted.moves.frequent
    return lambda rows: ((n * votes_BHV[rows] + frequent_V) / (n + 1)).log()


PLAIN: Mapping[str, Plain] = {
    plain.method.id + SUFFIX: plain
    for plain in (
        Plain(no_traj.METHOD, "cosine", by_plan(no_traj.plan)),
        Plain(endpoint_traj.METHOD, "cosine", by_plan(endpoint_traj.plan)),
        Plain(oracle.METHOD, "cosine", by_plan(oracle.plan)),
        Plain(pool_mean.METHOD, "cosine", by_plan(pool_mean.plan)),
        Plain(knn_labels.METHOD, "vote", by_votes),
    )
}
"""Row -> the row that it decodes together."""


def shortlist(batch: "WindowBatch", row: str) -> "Shortlist":
    """Return the labels that a row's plain row holds most probable."""
    from trajpilot_core.methods.sequences import shortlisted

    keep = batch.joint().config.shortlist
    return shortlisted(batch.segments, batch.view.data.read_bank, keep, PLAIN[row].score(batch))


def answer(row: str) -> "Callable[[WindowBatch], Answers]":
    """Return how a row answers; without a vote it repeats its plain row."""

    def answers(batch: "WindowBatch") -> Answers:
        from trajpilot_core.methods.sequences import instead, joint_answers

        sequences = batch.joint()
        found = joint_answers(sequences.fitted, shortlist(batch, row), sequences.knobs[row])
        if PLAIN[row].kind == "cosine":
            return found
        return instead(found, knn_labels.answer(batch), batch.candidates().found.valid.any(1))

    return answers


LIGHT, DARK = "#6a3d9a", "#dda6f5"
"""Their colours, so that a row and the same row decoded together are told apart; marks are those of the plain rows."""


def decoded_together(row: str) -> Method:
    """Return the row that decodes another one's steps together: it sees the same and has the same bound."""
    plain = PLAIN[row].method
    return Method(
        id=row,
        name=f"{plain.name} + Viterbi",
        knows=f"as {plain.name}; its steps are decoded together, with the transitions of the training takes",
        sees=plain.sees,
        ceiling=plain.ceiling,
        role="ablation",
        models=plain.models,
        answer=answer(row),
        against={plain.id: ""},
        part_of=plain.id,
        style=RowStyle(plain.style.mark, LIGHT, DARK, "4 2 1 2", width=1.5),
    )


ROWS: list[Method] = [decoded_together(row) for row in PLAIN]
