"""What distances between features say: of four kinds of pairs, and whether true plans come closer to the goal.

Source: paper, appendices on diagnostics and on goal progress; docs/decisions/diagnostics.md. Axes: S segments with a
feature, D its width, P pairs, N windows of one horizon H, M = H - 2 middle steps.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.diagnostics import DiagnosticsConfig
from schemas.results import PairDistance, ProgressShare
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.evaluation.bootstrap import cluster_sums, draw_weights, interval
from trajpilot_core.evaluation.segment_pairs import KINDS, SegmentPlaces, drawn_pairs

QUANTITIES = ("mean_l1", "standardised_l1", "mean_cosine")
SPACES = ("raw", "standardised")
CHUNK = 1_024
"""Pairs or windows that are compared at once."""
FLOOR = 1e-3
"""A component that varies less than this share of the average one is divided by that bound (models.predictor)."""


@dataclass(frozen=True)
class PooledFeatures:
    """Features as they are stored, pooled over their tokens where they are read."""

    vectors: NDArray[np.generic]
    """(S, C * D)."""
    tokens: int
    """C."""
    scale: NDArray[np.float32]
    """(D,) standard deviations over the training takes."""

    def of(self, rows: Codes) -> NDArray[np.float32]:
        """Return (..., D) features of rows of any shape."""
        return np.reshape(pooled(self.vectors[rows.reshape(-1)], self.tokens), (*rows.shape, -1))


def pooled(vectors: NDArray[np.generic], tokens: int) -> NDArray[np.float32]:
    """Return (S, D): the mean over the tokens of (S, C * D) features."""
    values: NDArray[np.float32] = vectors.astype(np.float32).reshape(len(vectors), tokens, -1).mean(axis=1)
    return values


def standard_deviation(vectors: NDArray[np.generic], tokens: int, rows: Codes) -> NDArray[np.float32]:
    """Return the deviation over some rows of (S, C * D) features, of shape (D,), read in parts."""
    width = vectors.shape[1] // tokens
    total, squares, n = np.zeros(width), np.zeros(width), max(1, len(rows))
    for part in _parts(len(rows)):
        values = pooled(vectors[rows[part]], tokens).astype(np.float64)
        total, squares = total + values.sum(axis=0), squares + (values**2).sum(axis=0)
    deviation = np.sqrt(np.maximum(squares / n - (total / n) ** 2, 0))
    floor = max(float(deviation.mean()) * FLOOR, float(np.finfo(np.float32).tiny))
    return np.maximum(deviation, floor).astype(np.float32)


def pair_distances(
    features: PooledFeatures, at: SegmentPlaces, splits: Mapping[str, Codes], cfg: DiagnosticsConfig
) -> list[PairDistance]:
    """Return the mean distances of every kind of pair of each split, with intervals over the takes of first segments.

    A kind without a pair has no row. l1 is the mean over the components, as the paper's.

    Args:
        features: of S segments.
        at: where these lie.
        splits: split -> rows; no pair leaves its split.
        cfg: pairs, seed, draws.
    """
    found = []
    for number, (split, rows) in enumerate(splits.items()):
        pairs = drawn_pairs(at, rows, cfg, np.random.default_rng((cfg.seed, number)))
        for kind in KINDS:
            first, second = pairs[kind]
            if not len(first):
                continue
            measured = np.concatenate([_compared(features, first[p], second[p]) for p in _parts(len(first))])
            means, lows, highs, n_takes = over_takes(measured, at.take[first], cfg)
            found += [
                PairDistance(
                    split=split,
                    pairs=kind,
                    quantity=name,
                    value=mean,
                    low=low,
                    high=high,
                    n_pairs=len(first),
                    n_takes=n_takes,
                )
                for name, mean, low, high in zip(QUANTITIES, means, lows, highs, strict=True)
            ]
    return found


def _compared(features: PooledFeatures, first: Codes, second: Codes) -> Array:
    """Return (P, 3): the quantities of pairs."""
    one, two = features.of(first), features.of(second)
    far = np.abs(one - two)
    norm = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    cosine = (one * two).sum(axis=1) / np.maximum(norm, np.finfo(np.float32).tiny)
    return np.stack([far.mean(axis=1), (far / features.scale).mean(axis=1), cosine], axis=1).astype(np.float64)


def progress_shares(
    features: PooledFeatures, windows: Mapping[tuple[str, int], tuple[Codes, Codes]], cfg: DiagnosticsConfig
) -> list[ProgressShare]:
    """Return the share of windows whose middle steps come closer to the goal one by one, and that of random orders.

    Args:
        features: of S segments.
        windows: (split, H) -> (N, H) rows of features, and (N,) takes.
        cfg: draws.
    """
    found = []
    for (split, horizon), (rows_NH, take_N) in sorted(windows.items()):
        counted = [_approaching(features, rows_NH[part]) for part in _parts(len(rows_NH))]
        if not counted:
            continue
        means, lows, highs, n_takes = over_takes(100.0 * np.concatenate(counted), take_N, cfg)
        found += [
            ProgressShare(
                split=split,
                horizon=horizon,
                space=space,
                share=mean,
                low=low,
                high=high,
                chance=100 / math.factorial(horizon - 2),
                n_windows=len(rows_NH),
                n_takes=n_takes,
            )
            for space, mean, low, high in zip(SPACES, means, lows, highs, strict=True)
        ]
    return found


def _approaching(features: PooledFeatures, rows_NH: Codes) -> Array:
    """Return (N, 2): 1 where the raw, and the standardised, l1 distance to the Goal falls at every middle step."""
    values_NHD = features.of(rows_NH)
    far_NMD = np.abs(values_NHD[:, 1:-1] - values_NHD[:, -1:])
    distances = (far_NMD.mean(axis=-1), (far_NMD / features.scale).mean(axis=-1))
    return np.stack([falls(distance_NM.astype(np.float64)) for distance_NM in distances], axis=1).astype(np.float64)


def falls(distance_NM: Array) -> Mask:
    """Return (N,): true where a distance falls at every middle step; Start is not in the chain, one step always counts.

    Args:
        distance_NM: (N, M) to the goal.
    """
    return np.asarray((np.diff(distance_NM, axis=1) < 0).all(axis=1))


def over_takes(
    values: Array, takes: Codes, cfg: DiagnosticsConfig
) -> tuple[list[float], list[float], list[float], int]:
    """Return means of (N, Q) values, both ends of their intervals over (N,) takes, and the number of takes."""
    _, take = np.unique(takes, return_inverse=True)
    n_takes = int(take.max()) + 1
    sums, counts = cluster_sums(values, take.astype(np.int64), n_takes)
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    drawn = (weights @ sums) / (weights @ counts)[:, None]
    low, high = interval(drawn[:, None], np.array([n_takes]), cfg.confidence)
    return values.mean(axis=0).tolist(), low[0].tolist(), high[0].tolist(), n_takes


def _parts(n: int) -> Iterator[slice]:
    """Yield slices that cover n rows."""
    return (slice(begin, begin + CHUNK) for begin in range(0, n, CHUNK))
