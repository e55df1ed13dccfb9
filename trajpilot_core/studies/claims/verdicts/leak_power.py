"""What the check against the exact ceilings could find: the smallest leak that turns it red.

Windows are chosen at random (seeded) and their answers replaced by the truth. The tables hold sums per take and
horizon, so a chosen window loses the mean of its take and horizon and gains 100 %, a mixture linear in the sums.
Shapes: T takes, H horizons, A shares.
"""

import math
from functools import lru_cache

import numpy as np

from schemas.claims import ClaimsConfig, VerdictConfig, world_seeds
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation.ceiling import ERRORS, paired
from trajpilot_core.methods import method
from trajpilot_core.studies.claims.evidence.tables import CEILING, METRICS, Evidence

DIGITS = 9
LEAKS_KEPT = 3
"""Leaks that stay in memory, one per seed of a world."""
RIGHT = 100.0
"""What a window that is answered with the truth gets in every metric, percent."""


def smallest_leak(
    evidence: Evidence, world: str, row: str, metric: str, cfg: ClaimsConfig, limits: VerdictConfig
) -> float | None:
    """Return the smallest share of leaked test windows at which a row lies above its ceiling by the rule.

    Args:
        evidence: the tables.
        world: name of the world.
        row: a row with a ceiling.
        metric: one of `tables.METRICS`.
        cfg: planned seeds and horizons.
        limits: the step of the share and the seed of the choice.

    Returns:
        A share, 0 where the row is above already; None where a planned seed is missing, where row and ceiling were
        scored on different windows, or where no leak turns the check red.
    """
    shares_A = np.append(np.arange(0.0, 1.0, limits.leak_step), 1.0)
    differences, variances = np.zeros(len(shares_A)), np.zeros(len(shares_A))
    planned = world_seeds(cfg, world)
    for seed in planned:
        found = _leaked(evidence, world, seed, row, metric, shares_A, limits)
        if found is None:
            return None
        differences += found[0] / len(planned)
        variances += (found[1] / len(planned)) ** 2
    red_A = differences > ERRORS * np.sqrt(variances)
    return round(float(shares_A[red_A.argmax()]), DIGITS) if red_A.any() else None


def _leaked(
    evidence: Evidence, world: str, seed: int, row: str, metric: str, shares_A: Array, limits: VerdictConfig
) -> tuple[Array, Array] | None:
    """Return row - ceiling and its standard error in one seed, each of shape (A,); None where either is missing."""
    scores = evidence.scores.get(world, {}).get(seed)
    ceiling = f"{CEILING}{method(row).ceiling}"
    if scores is None or row not in scores.rows or ceiling not in scores.rows:
        return None
    counts = scores.counts[row]
    if not np.array_equal(counts, scores.counts[ceiling]):
        return None
    column = METRICS.index(metric)
    leaks_THA = _leaks_of(counts.tobytes(), counts.shape, tuple(shares_A), (limits.leak_seed, seed))
    mixed_THA = with_leak(scores.rows[row][..., column], counts, leaks_THA)
    bound_THA = np.broadcast_to(scores.rows[ceiling][..., column, None], mixed_THA.shape)
    values, ceilings, errors = paired(np.stack([mixed_THA, bound_THA]), counts)
    return values - ceilings, errors


@lru_cache(maxsize=LEAKS_KEPT)
def _leaks_of(counts: bytes, shape: tuple[int, ...], shares: tuple[float, ...], seeds: tuple[int, int]) -> Array:
    """Return `leaked_windows`, kept: the rows of a world are scored on the same windows."""
    counts_TH: Array = np.frombuffer(counts).reshape(shape)
    return leaked_windows(counts_TH, np.asarray(shares), np.random.default_rng(seeds))


def leaked_windows(counts: Array, shares_A: Array, rng: np.random.Generator) -> Array:
    """Return (T, H, A): how many windows of a take and horizon leak at each share; what leaks once goes on leaking.

    Args:
        counts: (T, H) windows.
        shares_A: (A,) shares of all windows.
        rng: chooses the order in which windows leak.
    """
    cells_N = np.repeat(np.arange(counts.size), np.round(counts).astype(np.int64).ravel())
    order_N = rng.permutation(cells_N)
    n_leaked = [math.ceil(share * len(order_N)) for share in shares_A]
    leaks = [np.bincount(order_N[:n], minlength=counts.size).reshape(counts.shape) for n in n_leaked]
    return np.stack(leaks, axis=-1).astype(np.float64)


def with_leak(sums: Array, counts: Array, leaks_THA: Array) -> Array:
    """Return (T, H, A): (T, H) sums over windows, of which some are answered with the truth instead."""
    means = np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)
    return np.asarray(sums[..., None] + leaks_THA * (RIGHT - means[..., None]))
