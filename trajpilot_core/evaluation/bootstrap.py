"""Intervals over takes: windows of one take overlap, so takes are resampled, never windows.

Shapes: T clusters (takes), H horizons, M metrics, B draws. Method and measured coverage:
docs/decisions/metrics.md.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.training import IntervalConfig
from trajpilot_core.arrays import Array, Codes

MIN_CLUSTERS = 6
"""Below this many clusters no interval is given: with 2, 3, 4 and 5 clusters the nominal 95 % interval covers 55, 72,
89 and 92 % of the time, from 6 on 93 to 94 %. Measured: docs/decisions/metrics.md."""
DIGITS = 9
"""Decimal places of the numbers of tables, so that equal inputs give equal bytes for any order of a sum."""


def rounded(**numbers: float) -> dict[str, Any]:
    """Return the numbers with `DIGITS` decimal places, under their names."""
    return {name: round(float(value), DIGITS) for name, value in numbers.items()}


def draw_weights(n_clusters: int, n_draws: int, seed: int) -> Array:
    """Return (B, T): how often each cluster is in each resample of T clusters with replacement."""
    generator = np.random.default_rng(seed)
    return generator.multinomial(n_clusters, np.full(n_clusters, 1.0 / n_clusters), size=n_draws).astype(np.float64)


def cluster_sums(values: Array, clusters: NDArray[np.int64], n_clusters: int) -> tuple[Array, Array]:
    """Return (T, M) sums of (N, M) `values` and (T,) window counts per cluster; `clusters`: (N,), 0 to T - 1."""
    counts: Array = np.bincount(clusters, minlength=n_clusters).astype(np.float64)
    columns = [np.bincount(clusters, column, minlength=n_clusters) for column in values.T]
    sums: Array = np.stack(columns, axis=1).astype(np.float64)
    return sums, counts


def pooled(sums: Array, counts: Array) -> Array:
    """Return (..., H + 2, M): the ratio per horizon, then their plain mean, then their mean weighted by windows.

    Args:
        sums: (..., H, M) sums over windows.
        counts: (..., H) numbers of windows; a horizon without windows gives NaN.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        per_horizon = sums / counts[..., None]
        sample = sums.sum(axis=-2) / counts.sum(axis=-1)[..., None]
    plain = per_horizon.mean(axis=-2)
    return np.concatenate([per_horizon, plain[..., None, :], sample[..., None, :]], axis=-2)


def resampled(weights: Array, sums: Array, counts: Array) -> Array:
    """Return (B, H + 2, M): `pooled` of every resample.

    Args:
        weights: (B, T) of `draw_weights`.
        sums: (T, H, M) sums per cluster. For a paired difference: the difference of the sums of the two rows.
        counts: (T, H) windows per cluster.
    """
    n_clusters, n_horizons, n_metrics = sums.shape
    draws = (weights @ sums.reshape(n_clusters, -1)).reshape(-1, n_horizons, n_metrics)
    return pooled(draws, weights @ counts)


@lru_cache(maxsize=256)
def tail(confidence: float, n_clusters: int) -> float:
    """Return the probability left out on each side, narrowed for few clusters.

    A percentile interval of n clusters is too short by sqrt((n - 1) / n) and uses normal instead of t quantiles; the
    "expanded percentile" interval corrects both (Hesterberg, What Teachers Should Know About the Bootstrap, 2015, 5.3).
    """
    if n_clusters < 2:
        return 0.0
    from scipy.stats import norm, t  # loads for a second, which commands that only read tables do not need

    wider = math.sqrt(n_clusters / (n_clusters - 1)) * float(t.ppf(0.5 + confidence / 2, n_clusters - 1))
    return float(norm.cdf(-wider))


def interval(draws: Array, n_clusters: NDArray[np.int64], confidence: float) -> tuple[Array, Array]:
    """Return the (R, M) lower and upper ends of the intervals of R rows and M metrics.

    Args:
        draws: (B, R, M) resampled values; NaN where a resample has no window of the row.
        n_clusters: (R,) clusters with a window of the row. Below MIN_CLUSTERS the ends are infinite: no interval.
        confidence: nominal level, for example 0.95.
    """
    low, high = np.full(draws.shape[1:], -np.inf), np.full(draws.shape[1:], np.inf)
    for row, count in enumerate(n_clusters.tolist()):
        if count < MIN_CLUSTERS:
            continue
        columns = draws[:, row].T
        kept = columns[:, ~np.isnan(columns).any(axis=0)]
        outside = tail(confidence, count)
        low[row], high[row] = np.quantile(kept, [outside, 1 - outside], axis=1)
    return low, high


def ends_of(draws_BM: Array, n_takes: int, confidence: float) -> tuple[Array, Array]:
    """Return the (M,) lower and upper ends of intervals of M resampled figures, infinite below MIN_CLUSTERS takes."""
    low, high = interval(draws_BM[:, None], np.array([n_takes]), confidence)
    return low[0], high[0]


def ends_of_means(values_NM: Array, takes_N: Codes, cfg: IntervalConfig) -> tuple[Array, Array, int]:
    """Return the (M,) lower and upper ends of the intervals over takes of the means of N values; number of takes."""
    _, take = np.unique(takes_N, return_inverse=True)
    n_takes = int(take.max()) + 1
    sums, counts = cluster_sums(values_NM, take.astype(np.int64), n_takes)
    weights = draw_weights(n_takes, cfg.bootstrap, cfg.seed)
    return *ends_of((weights @ sums) / (weights @ counts)[:, None], n_takes, cfg.confidence), n_takes
