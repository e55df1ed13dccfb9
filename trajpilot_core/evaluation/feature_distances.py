"""Distances between features: of four kinds of pairs, and whether true plans come closer to the goal step by step.

Source: paper, appendices on diagnostics and on goal progress; docs/decisions/diagnostics.md. Axes: S segments with a
feature, D its width, P pairs, N windows of one horizon H, M = H - 2 middle steps.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.config import DiagnosticsConfig
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.evaluation.bootstrap import ends_of_means

ADJACENT, FAR = "adjacent_same_recording", "far_same_recording"
SAME_ACTION, RANDOM = "same_action_other_recording", "random_other_recording"
KINDS = (ADJACENT, FAR, SAME_ACTION, RANDOM)
"""In the order of the paper's table. Another recording is another capture: two takes of one share the room."""
TRIES = 32
"""Attempts to sample a partner before a segment is left without one."""


@dataclass(frozen=True)
class SegmentPlaces:
    """Places of S segments, each (S,): take, capture, run within the take, position in the take, label."""

    take: Codes
    capture: Codes
    run: Codes
    """A lost segment starts a new one."""
    position: Codes
    label: Codes


@dataclass(frozen=True)
class Choice:
    """Candidates of each anchor: places of `order` from `begin` to `end` except those from `hole` to `hole_end`."""

    order: Codes
    """(R,) rows of segments."""
    begin: Codes
    end: Codes
    hole: Codes
    hole_end: Codes

    def sampled(self, fits: Callable[[Codes, Codes], Mask], anchors: Codes, generator: np.random.Generator) -> Codes:
        """Return (A,) one row each, sampled among those that fit; -1 where none was found."""
        n_hole = self.hole_end - self.hole
        n_left = self.end - self.begin - n_hole
        partner, left = np.full(len(anchors), -1, np.int64), np.flatnonzero(n_left > 0)
        for _ in range(TRIES):
            place = self.begin[left] + (generator.random(len(left)) * n_left[left]).astype(np.int64)
            place += np.where(place >= self.hole[left], n_hole[left], 0)
            good = fits(anchors[left], self.order[place])
            partner[left[good]] = self.order[place[good]]
            left = left[~good]
        return partner


def drawn_pairs(
    at: SegmentPlaces, rows: Codes, cfg: DiagnosticsConfig, generator: np.random.Generator
) -> dict[str, tuple[Codes, Codes]]:
    """Return kind -> (P,) rows of the first and (P,) rows of the second segments of pairs.

    adjacent: the next segment of the run. far: a later one of the take, at least `far_steps` places on, with another
    label. same action: another capture, the same label. random: another capture, another label.

    Args:
        rows: (R,) of one split; no pair leaves it.
    """
    anchors = np.sort(generator.permutation(rows)[: cfg.pairs])
    nowhere = np.zeros(len(anchors), np.int64)
    whole = Choice(rows, nowhere, np.full_like(nowhere, len(rows)), nowhere, nowhere)
    keys, order = _sorted(at.take, at.position, rows)
    wanted = _key(at.take[anchors], at.position[anchors] + 1)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    is_next = (keys[place] == wanted) & (at.run[order[place]] == at.run[anchors])
    following = np.where(is_next, order[place], -1)
    end = np.searchsorted(at.take[order], at.take[anchors], side="right")
    begin = np.searchsorted(keys, _key(at.take[anchors], at.position[anchors] + cfg.far_steps))
    later = Choice(order, np.minimum(begin, end), end, end, end)
    keys, order = _sorted(at.label, at.capture, rows)
    of_label = (np.searchsorted(at.label[order], at.label[anchors], side=side) for side in ("left", "right"))
    of_capture = _key(at.label[anchors], at.capture[anchors])
    same_label = Choice(order, *of_label, *(np.searchsorted(keys, of_capture, side=side) for side in ("left", "right")))
    partners = {
        ADJACENT: following,
        FAR: later.sampled(lambda one, two: at.label[one] != at.label[two], anchors, generator),
        SAME_ACTION: same_label.sampled(lambda one, two: one != two, anchors, generator),
        RANDOM: whole.sampled(
            lambda one, two: (at.capture[one] != at.capture[two]) & (at.label[one] != at.label[two]), anchors, generator
        ),
    }
    return {kind: (anchors[partner >= 0], partner[partner >= 0]) for kind, partner in partners.items()}


def _sorted(first: Codes, second: Codes, rows: Codes) -> tuple[Codes, Codes]:
    """Return (R,) keys of rows in rising order, and the (R,) rows in that order."""
    keys = _key(first[rows], second[rows])
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]


def _key(first: Codes, second: Codes) -> Codes:
    """Combine two numbers below 2^31 into one that sorts by the first, then by the second."""
    return (first << 32) + second


QUANTITIES = ("mean_l1", "mean_cosine")
CHUNK = 1_024
"""Pairs or windows that are compared at once."""


@dataclass(frozen=True)
class PooledFeatures:
    """Features as they are stored; they are pooled over their tokens when they are read."""

    vectors: NDArray[np.generic]
    """(S, C * D)."""
    tokens: int
    """C."""

    def of(self, rows: Codes) -> NDArray[np.float32]:
        """Return (..., D) features of rows of any shape."""
        return np.reshape(pooled(self.vectors[rows.reshape(-1)], self.tokens), (*rows.shape, -1))


def pooled(vectors: NDArray[np.generic], tokens: int) -> NDArray[np.float32]:
    """Return (S, D): the mean over the tokens of (S, C * D) features."""
    values: NDArray[np.float32] = vectors.astype(np.float32).reshape(len(vectors), tokens, -1).mean(axis=1)
    return values


def pair_distances(
    features: PooledFeatures, at: SegmentPlaces, splits: Mapping[str, Codes], cfg: DiagnosticsConfig
) -> list[PairDistance]:
    """Return the mean distances of every kind of pair of each split, with intervals over the takes of first segments.

    A kind without a pair has no row; no pair leaves its split. l1 is the mean over the components, as the paper's.
    """
    rows = []
    for number, (split, segments) in enumerate(splits.items()):
        pairs = drawn_pairs(at, segments, cfg, np.random.default_rng((cfg.seed, number)))
        for kind in KINDS:
            first, second = pairs[kind]
            if not len(first):
                continue
            measured = np.concatenate([_compared(features, first[p], second[p]) for p in _parts(len(first))])
            low, high, n_takes = ends_of_means(measured, at.take[first], cfg)
            common = {"split": split, "pairs": kind, "n_pairs": len(first), "n_takes": n_takes}
            for q, quantity in enumerate(QUANTITIES):
                figure = {"quantity": quantity, "value": measured.mean(axis=0)[q], "low": low[q], "high": high[q]}
                rows.append(PairDistance.model_validate(common | figure))
    return rows


def _compared(features: PooledFeatures, first: Codes, second: Codes) -> Array:
    """Return (P, 2): the quantities of pairs."""
    one, two = features.of(first), features.of(second)
    far = np.abs(one - two)
    norm = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    cosine = (one * two).sum(axis=1) / np.maximum(norm, np.finfo(np.float32).tiny)
    return np.stack([far.mean(axis=1), cosine], axis=1).astype(np.float64)


def progress_shares(
    features: PooledFeatures, windows: Mapping[tuple[str, int], tuple[Codes, Codes]], cfg: DiagnosticsConfig
) -> list[ProgressShare]:
    """Return the share of windows whose middle steps come ever closer to the goal, and that of random orders.

    `windows`: (split, H) -> (N, H) rows of features, and (N,) takes.
    """
    rows = []
    for (split, horizon), (rows_NH, take_N) in sorted(windows.items()):
        counted = []
        for part in _parts(len(rows_NH)):
            values_NHD = features.of(rows_NH[part])
            far_NM = np.abs(values_NHD[:, 1:-1] - values_NHD[:, -1:]).mean(axis=-1)
            counted.append(falls(far_NM.astype(np.float64)).astype(float))
        if not counted:
            continue
        shares = 100.0 * np.concatenate(counted)
        low, high, n_takes = ends_of_means(shares[:, None], take_N, cfg)
        chance = 100 / math.factorial(horizon - 2)
        common = {"split": split, "horizon": horizon, "n_windows": len(rows_NH), "n_takes": n_takes, "chance": chance}
        figure = {"share": shares.mean(), "low": low[0], "high": high[0]}
        rows.append(ProgressShare.model_validate(common | figure))
    return rows


def falls(distance_NM: Array) -> Mask:
    """Return (N,): true where (N, M) distances to the goal fall at every middle step; one step always counts."""
    return np.asarray((np.diff(distance_NM, axis=1) < 0).all(axis=1))


def _parts(n: int) -> Iterator[slice]:
    """Yield slices that cover n rows."""
    return (slice(begin, begin + CHUNK) for begin in range(0, n, CHUNK))
