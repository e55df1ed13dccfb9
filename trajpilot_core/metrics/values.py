"""The arithmetic of the metrics, one pure function each, as values per window.

A metric of a table is the mean of these values over windows, in percent, except the edit distance, which is in steps.
Shapes: N windows of one horizon, H positions, K ranked answers. All arrays contain integer codes of labels; equal codes
are the same answer. Definitions: docs/decisions/metrics.md; the paper (arXiv 2605.20388), experiments section, names
them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from trajpilot_core.arrays import Array, Codes


def _percent(shares: NDArray[Any]) -> Array:
    """Convert (N,) shares or truth values to percentages."""
    return 100.0 * np.asarray(shares, dtype=np.float64)


def step_recall(labels: Codes, rankings: Codes, k: int) -> Array:
    """Return per window the share of its positions whose label is among the first k ranked answers, in percent.

    Args:
        labels: (N, P) true codes of the positions that count.
        rankings: (N, P, K) ranked codes, best first; -1 fills the places of a vocabulary smaller than K.

    Returns:
        (N,) percentages.
    """
    hits = (rankings[..., :k] == labels[..., None]).any(axis=2)
    return _percent(hits.mean(axis=1))


def mid_recall(labels: Codes, rankings: Codes, k: int) -> Array:
    """Return M@k per window, (N,) percent: recall over the positions between Start and Goal of (N, H) labels."""
    return step_recall(labels[:, 1:-1], rankings[:, 1:-1], k)


def full_recall(labels: Codes, rankings: Codes, k: int) -> Array:
    """Return F@k per window, (N,) percent: recall over all positions of (N, H) labels, Start and Goal included."""
    return step_recall(labels, rankings, k)


def mid_exact(labels: Codes, decoded: Codes) -> Array:
    """Return MSeq per window, (N,): 100 where all positions between Start and Goal of (N, H) are right, else 0."""
    return _percent((labels[:, 1:-1] == decoded[:, 1:-1]).all(axis=1))


def full_exact(labels: Codes, decoded: Codes) -> Array:
    """Return FSeq per window, (N,): 100 where all positions of (N, H) are right, else 0.

    On a closed vocabulary this is the success rate SR.
    """
    return _percent((labels == decoded).all(axis=1))


def mean_accuracy(labels: Codes, decoded: Codes) -> Array:
    """Return mAcc per window, (N,) percent: share of the H positions of (N, H) where the decoded sequence is right."""
    return _percent((labels == decoded).mean(axis=1))


def mid_accuracy(labels: Codes, decoded: Codes) -> Array:
    """Return Mid mAcc per window, (N,) percent: as `mean_accuracy`, over the positions between Start and Goal."""
    return mean_accuracy(labels[:, 1:-1], decoded[:, 1:-1])


def _first_seen(codes: Codes) -> NDArray[np.bool_]:
    """Return (N, H): true where a code is the first of its kind in its row."""
    earlier = np.tril(np.ones((codes.shape[1], codes.shape[1]), dtype=bool), k=-1)
    seen: NDArray[np.bool_] = ((codes[:, :, None] == codes[:, None, :]) & earlier).any(axis=2)
    return ~seen


def sequence_iou(labels: Codes, decoded: Codes) -> Array:
    """Return per window the intersection over union of its two label sets, (N,) percent.

    Every row is scored on its own two sets. Some published code scores the set of a whole batch, or sets that are never
    cleared; both grow with the batch (docs/decisions/metrics.md).

    Args:
        labels: (N, H) true codes.
        decoded: (N, H) codes of the predicted sequence.
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
