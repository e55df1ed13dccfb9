"""The metrics of planning windows: recall of ranked answers, exact sequences, accuracies, overlap.

M metrics read the steps between Start and Goal, F metrics all steps. A metrics read all steps after Start, including
the place of a masked Goal, and only for rows without a goal: the paper prints M@1, M@5, MSeq ("Future") and F@1, F@5,
FSeq ("Full") for anticipation as well, and A metrics are the other reading of its text (docs/decisions/anticipation.md,
D 48). The paper's closed tables print Mid mAcc as mAcc, its table of poses has both. A metric of a table is the mean
over windows, in percent, except the edit distance, which is in steps. Definitions: docs/decisions/metrics.md.

Shapes: N windows of one horizon, H positions, K ranked answers. All arrays contain integer codes of labels; equal codes
are the same answer.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.metrics.base import MetricSpec

if TYPE_CHECKING:
    from trajpilot_core.simworld.inference.bayes_optimal import Decisions

MIDDLES, ALL, AFTER_START = slice(1, -1), slice(None), slice(1, None)
EXACT = {"mid": MIDDLES, "full": ALL, "after": AFTER_START}
"""Sequence of the exact decisions, in the order of `Decisions.is_proven` -> its steps."""


def _percent(shares: NDArray[Any]) -> Array:
    """Convert (N,) shares or truth values to percentages."""
    return 100.0 * np.asarray(shares, dtype=np.float64)


def step_recall(labels: Codes, rankings: Codes, k: int) -> Array:
    """Return (N,) percent: per window the share of its P positions whose label is among the first k of K answers.

    `labels` is (N, P); `rankings` is (N, P, K), best first, -1 fills the places of a vocabulary smaller than K.
    """
    hits = (rankings[..., :k] == labels[..., None]).any(axis=2)
    return _percent(hits.mean(axis=1))


def mid_recall(labels: Codes, rankings: Codes, k: int) -> Array:
    """Return M@k per window, (N,) percent: recall over the positions between Start and Goal of (N, H) labels."""
    return step_recall(labels[:, 1:-1], rankings[:, 1:-1], k)


def full_exact(labels: Codes, decoded: Codes) -> Array:
    """Return FSeq per window, (N,): 100 where all positions of (N, H) are right, else 0.

    On a closed vocabulary this is the success rate SR.
    """
    return _percent((labels == decoded).all(axis=1))


def mean_accuracy(labels: Codes, decoded: Codes) -> Array:
    """Return mAcc per window, (N,) percent: share of the H positions of (N, H) where the decoded sequence is right."""
    return _percent((labels == decoded).mean(axis=1))


def _first_seen(codes: Codes) -> NDArray[np.bool_]:
    """Return (N, H): true where a code is the first of its kind in its row."""
    earlier = np.tril(np.ones((codes.shape[1], codes.shape[1]), dtype=bool), k=-1)
    seen: NDArray[np.bool_] = ((codes[:, :, None] == codes[:, None, :]) & earlier).any(axis=2)
    return ~seen


def sequence_iou(labels: Codes, decoded: Codes) -> Array:
    """Return the intersection over union of the label sets of two (N, H) sequences per window, (N,) percent.

    Every row is scored on its own two sets. Some published code scores the set of a whole batch, or sets that are never
    cleared; both grow with the batch (docs/decisions/metrics.md).
    """
    distinct = _first_seen(decoded)
    shared = ((decoded[:, :, None] == labels[:, None, :]).any(axis=2) & distinct).sum(axis=1)
    union = distinct.sum(axis=1) + _first_seen(labels).sum(axis=1) - shared
    return _percent(shared / union)


def edit_distance(labels: Codes, decoded: Codes) -> Array:
    """Return the Levenshtein distance of two (N, H) sequences per window, (N,) in steps, not divided by H.

    Insertion, deletion and substitution cost 1 each; there is no transposition.
    """
    pairs = zip(labels.tolist(), decoded.tolist(), strict=True)
    return np.array([Levenshtein.distance(truth, guess) for truth, guess in pairs], dtype=np.float64)


def recall(
    id_: str, description: str, steps: slice, k: int, table: Literal["open", "anticipation"] = "open"
) -> MetricSpec:
    """Return the recall of some steps among the first k answers."""
    return MetricSpec(
        id=id_,
        description=description,
        values=lambda labels, _, rankings: step_recall(labels[:, steps], rankings[:, steps], k),
        table=table,
        reached=lambda labels, best: step_recall(labels[:, steps], best.ranking[:, steps], k),
        expected=lambda best: 100.0 * best.chance[..., :k].sum(axis=2)[:, steps].mean(1),
    )


def of_sequence(
    id_: str, description: str, values: Callable[[Codes, Codes], Array], *, higher_is_better: bool = True
) -> MetricSpec:
    """Return a metric of the decoded sequence, as in the paper's tables of closed vocabularies."""
    return MetricSpec(
        id=id_,
        description=description,
        values=lambda labels, decoded, _: values(labels, decoded),
        table="sequence",
        higher_is_better=higher_is_better,
    )


def exact(
    id_: str, description: str, part: Literal["mid", "full", "after"], table: Literal["open", "anticipation"] = "open"
) -> MetricSpec:
    """Return the share of windows with all steps of a part right; a best sequence without proof counts as right."""
    steps, place = EXACT[part], list(EXACT).index(part)

    def reached(labels: Codes, best: "Decisions") -> Array:
        return np.where(best.is_proven[:, place], full_exact(labels[:, steps], getattr(best, part)), 100.0)

    return MetricSpec(
        id=id_,
        description=description,
        values=lambda labels, decoded, _: full_exact(labels[:, steps], decoded[:, steps]),
        table=table,
        reached=reached,
        expected=lambda best: 100.0 * getattr(best, f"{part}_chance"),
    )


SPECS = (
    recall("M@1", "middle steps right at the first answer", MIDDLES, 1),
    recall("M@5", "middle steps with the truth among five answers", MIDDLES, 5),
    exact("MSeq", "windows with every middle step right", "mid"),
    recall("F@1", "all steps right at the first answer, Start and Goal included", ALL, 1),
    recall("F@5", "all steps with the truth among five answers", ALL, 5),
    exact("FSeq", "windows with every step right", "full"),
    of_sequence("SR", "success rate: every step of the decoded sequence right (FSeq)", full_exact),
    of_sequence(
        "Mid mAcc",
        "right middle steps of the decoded sequence",
        lambda labels, decoded: mean_accuracy(labels[:, MIDDLES], decoded[:, MIDDLES]),
    ),
    of_sequence("Full mAcc", "right steps of the decoded sequence, Start and Goal included", mean_accuracy),
    of_sequence("mIoU", "overlap of the sets of true and decoded labels, per window", sequence_iou),
    of_sequence("ED", "edit distance in steps, lower is better", edit_distance, higher_is_better=False),
    recall(
        "A@1",
        "steps after Start right at the first answer, the place of the Goal included",
        AFTER_START,
        1,
        "anticipation",
    ),
    recall(
        "A@5",
        "steps after Start with the truth among five answers, the place of the Goal included",
        AFTER_START,
        5,
        "anticipation",
    ),
    exact("ASeq", "windows with every step after Start right, the place of the Goal included", "after", "anticipation"),
)
"""In the order of the tables."""
