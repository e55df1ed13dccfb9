"""Figures over takes and seeds: profiles over the horizon, intervals, equivalence, and several comparisons at once.

Shapes: S seeds, T takes of one seed's world, H horizons (or kinds of pairs), B draws. A seed is a world of its own with
its own takes, so takes are resampled within each seed and the seeds are averaged. The rows of one world share draws, so
their differences are paired; two worlds share none. Reasons and formulas: docs/decisions/claims-statistics.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, t

from schemas.base import fingerprint
from schemas.claims import ClaimsConfig
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation import bootstrap

DIGITS = 9
"""Figures are rounded to this many places before anything is printed or judged, whatever the order of a sum."""
DRAWS_KEPT = 24
"""Sets of resampling weights that stay in memory, one per world and seed (8 MB each at 400 takes)."""


@dataclass(frozen=True, eq=False)
class Sums:
    """What one row got on the takes of one seed's world: sums over windows, and how many windows."""

    sums: Array
    """(T, H)."""
    counts: Array
    """(T, H)."""


@dataclass(frozen=True, eq=False)
class Profile:
    """One figure per horizon, for every seed, with its resamples."""

    seeds: tuple[int, ...]
    points: Array
    """(S, H)."""
    draws: Array
    """(S, B, H)."""
    n_takes: tuple[int, ...]
    """Takes per seed that hold a window at every horizon that any take holds."""
    n_windows: int
    """Over all seeds and horizons."""


@dataclass(frozen=True)
class Estimate:
    """One figure with its interval over takes, averaged over the seeds."""

    value: float
    low: float
    """Infinite where a seed has too few takes for an interval."""
    high: float
    per_seed: tuple[tuple[int, float], ...]
    n_takes: int
    """Over all seeds."""
    n_windows: int
    p: float
    """Two-sided, of the value zero, from the resamples."""

    def is_above_zero(self) -> bool:
        """Return whether the whole interval lies above zero."""
        return self.low > 0

    def is_below_zero(self) -> bool:
        """Return whether the whole interval lies below zero."""
        return self.high < 0


@dataclass(frozen=True)
class Equivalence:
    """Two one-sided tests of a difference against a margin, the variance between seeds included."""

    value: float
    standard_error: float
    between: float
    """Standard deviation between seeds beyond what the takes explain (0: nothing beyond)."""
    low: float
    high: float
    power: float
    """Chance that the tests would find equivalence at this standard error if the true difference were zero, percent.

    Not a number where the standard error is zero: nothing was there to test.
    """
    per_seed: tuple[tuple[int, float], ...]
    n_takes: int
    n_windows: int


@lru_cache(maxsize=DRAWS_KEPT)
def world_weights(world: str, seed: int, n_takes: int, n_draws: int, bootstrap_seed: int) -> NDArray[np.uint16]:
    """Return (B, T): how often each take stands in each resample; worlds and seeds are resampled independently."""
    own = int(fingerprint({"world": world, "seed": seed, "bootstrap": bootstrap_seed})[:12], 16)
    takes_BT = np.random.default_rng(own).integers(0, n_takes, (n_draws, n_takes), dtype=np.uint16).astype(np.int64)
    takes_BT += n_takes * np.arange(n_draws)[:, None]
    counts: NDArray[np.int64] = np.bincount(takes_BT.ravel(), minlength=n_draws * n_takes)
    return counts.reshape(n_draws, n_takes).astype(np.uint16)


def resample(world: str, seed: int, values: Array, cfg: ClaimsConfig) -> Array:
    """Return the sums of one seed's world in every resample.

    Args:
        world: its name; everything of one world and seed shares its draws.
        seed: of the world.
        values: shape (T, ...), per take.
        cfg: number of draws and their seed.

    Returns:
        Shape (B, ...).
    """
    weights_BT = world_weights(world, seed, len(values), cfg.bootstrap, cfg.bootstrap_seed).astype(np.float64)
    drawn: Array = weights_BT @ values.reshape(len(values), -1)
    return drawn.reshape(len(drawn), *values.shape[1:])


def profile(world: str, per_seed: Mapping[int, Sums], cfg: ClaimsConfig) -> Profile:
    """Resample one row, or one paired difference of rows, of a world.

    Args:
        world: its name.
        per_seed: seed -> sums; of a difference: the difference of the two rows' sums, on identical windows.
        cfg: number of draws and their seed.
    """
    drawn = {seed: resample(world, seed, np.stack([of.sums, of.counts], 1), cfg) for seed, of in per_seed.items()}
    return joined(per_seed, {seed: (both[:, 0], both[:, 1]) for seed, both in drawn.items()})


def joined(per_seed: Mapping[int, Sums], drawn: Mapping[int, tuple[Array, Array]]) -> Profile:
    """Put the sums of every seed and their resamples together.

    Args:
        per_seed: seed -> sums.
        drawn: seed -> (B, H) sums and (B, H) counts in every resample.
    """
    seeds = tuple(sorted(per_seed))
    held = [per_seed[seed] for seed in seeds]
    points = [_ratio(part.sums.sum(axis=0), part.counts.sum(axis=0)) for part in held]
    takes = tuple(int((part.counts > 0).sum(axis=0).min()) for part in held)
    draws = np.stack([_ratio(*drawn[seed]) for seed in seeds])
    return Profile(seeds, np.stack(points), draws, takes, int(sum(part.counts.sum() for part in held)))


def _ratio(sums: Array, counts: Array) -> Array:
    """Return the means; not a number where there is no window."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(sums, counts)


def minus(one: Profile, other: Profile) -> Profile:
    """Return the difference of two profiles of the same seeds: paired within a world, independent between two worlds.

    Raises:
        ValueError: the seeds differ.
    """
    if one.seeds != other.seeds:
        raise ValueError(f"profiles of the seeds {one.seeds} and {other.seeds} have no difference per seed")
    takes = tuple(min(pair) for pair in zip(one.n_takes, other.n_takes, strict=True))
    return Profile(
        one.seeds,
        one.points - other.points,
        one.draws - other.draws,
        takes,
        min(one.n_windows, other.n_windows),
    )


def has_nothing_to_compare(of: Profile) -> bool:
    """Return whether in some seed a paired difference is exactly zero in every resample: two rows that answer alike."""
    return any(
        not np.nan_to_num(points).any() and not np.nan_to_num(draws).any()
        for points, draws in zip(of.points, of.draws, strict=True)
    )


def plain_mean(n: int) -> Array:
    """Return the weights of shape (H,) of the plain mean over `n` horizons."""
    return np.full(n, 1.0 / n)


def slope_weights(horizons: Sequence[int]) -> Array:
    """Return the weights, shape (H,), whose product with a profile is its least-squares slope per step of horizon."""
    steps: Array = np.asarray(horizons, dtype=np.float64)
    centred: Array = steps - steps.mean()
    weights: Array = centred / float((centred**2).sum())
    return weights


def estimate(of: Profile, weights_H: Array, confidence: float) -> Estimate:
    """Read one figure off a profile.

    Args:
        of: the profile.
        weights_H: shape (H,), what the figure is: a mean over horizons, one of them, a slope; zero leaves one out.
        confidence: level of the interval over takes.
    """
    used = weights_H != 0
    points_S = of.points[:, used] @ weights_H[used]
    draws_B = (of.draws[:, :, used] @ weights_H[used]).mean(axis=0)
    return _figure(of, float(points_S.mean()), points_S, draws_B, min(of.n_takes), confidence)


def mean_of(of: Profile | None, cfg: ClaimsConfig) -> Estimate | None:
    """Read the plain mean over H off a profile; None where nothing was run."""
    return None if of is None else estimate(of, plain_mean(len(cfg.horizons)), cfg.confidence)


def at_each(of: Profile | None, cfg: ClaimsConfig) -> tuple[Estimate, ...]:
    """Read a profile at each H; nothing where nothing was run."""
    return () if of is None else tuple(estimate(of, one, cfg.confidence) for one in np.eye(len(cfg.horizons)))


def _figure(of: Profile, value: float, points_S: Array, draws_B: Array, n_takes: int, confidence: float) -> Estimate:
    """Return a value with the interval of its draws (B,), and the takes and windows of a profile."""
    ends = bootstrap.interval(draws_B[:, None, None], np.array([n_takes]), confidence)
    low, high = (round(float(end[0, 0]), DIGITS) for end in ends)
    per_seed = _per_seed(of, points_S)
    n_all = sum(of.n_takes)
    return Estimate(round(value, DIGITS), low, high, per_seed, n_all, of.n_windows, two_sided_p(draws_B))


def _per_seed(of: Profile, points_S: Array) -> tuple[tuple[int, float], ...]:
    return tuple((seed, round(float(value), DIGITS)) for seed, value in zip(of.seeds, points_S, strict=True))


def two_sided_p(draws_B: Array) -> float:
    """Return the bootstrap p-value of zero: twice the smaller share of draws on either side, with one draw added.

    It is the level at which a percentile interval would just touch zero; at least 2 / (B + 1) for draws of shape (B,).
    Draws are rounded like every figure: one that is zero but for the order of a sum counts on both sides.
    """
    kept = np.round(draws_B[~np.isnan(draws_B)], DIGITS)
    smaller = min(int((kept <= 0).sum()), int((kept >= 0).sum()))
    return min(1.0, 2.0 * (smaller + 1) / (len(kept) + 1))


def ratio(top: Profile, bottom: Profile, weights_H: Array, confidence: float) -> Estimate:
    """Return the ratio of two figures that are resampled together, each averaged over the seeds first.

    Args:
        top: the numerator.
        bottom: the denominator, of the same world and seeds.
        weights_H: shape (H,), read off both.
        confidence: level of the interval over takes.
    """
    tops, bottoms = top.points @ weights_H, bottom.points @ weights_H
    with np.errstate(divide="ignore", invalid="ignore"):
        draws_B = (top.draws @ weights_H).mean(axis=0) / (bottom.draws @ weights_H).mean(axis=0)
        value, points_S = float(tops.mean() / bottoms.mean()), tops / bottoms
    return _figure(top, value, points_S, draws_B, min(*top.n_takes, *bottom.n_takes), confidence)


def equivalence(of: Profile, weights_H: Array, cfg: ClaimsConfig) -> Equivalence:
    """Test a difference for equivalence within `cfg.margin`, takes and seeds both random.

    The seeds are averaged plainly. The variance of that mean is the variance over takes of each seed plus the variance
    between seeds (DerSimonian and Laird, 1986); the interval takes t quantiles with Satterthwaite's degrees of freedom,
    so that three seeds that disagree give a wide one.

    Args:
        of: profile of a paired difference.
        weights_H: shape (H,), the figure that is tested.
        cfg: margin and level.
    """
    points_S, draws_SB = of.points @ weights_H, of.draws @ weights_H
    n_seeds, takes_S = len(of.seeds), np.asarray(of.n_takes, dtype=np.float64)
    within_S = np.nanvar(draws_SB, axis=1, ddof=1) * takes_S / np.maximum(takes_S - 1, 1)
    between = between_variance(points_S, within_S)
    of_takes, of_seeds = float(within_S.sum()) / n_seeds**2, between / n_seeds
    error = math.sqrt(of_takes + of_seeds)
    quantile = float(t.ppf(0.5 + cfg.equivalence_level / 2, _freedom(of_takes, of_seeds, takes_S)))
    value = float(points_S.mean())
    chance = max(2.0 * float(norm.cdf(cfg.margin / error - quantile)) - 1.0, 0.0) if error > 0 else math.nan
    rounded = {
        "value": value,
        "standard_error": error,
        "between": math.sqrt(between),
        "low": value - quantile * error,
        "high": value + quantile * error,
        "power": 100.0 * chance,
    }
    return Equivalence(
        **{name: round(number, DIGITS) for name, number in rounded.items()},
        per_seed=_per_seed(of, points_S),
        n_takes=sum(of.n_takes),
        n_windows=of.n_windows,
    )


def between_variance(points_S: Array, within_S: Array) -> float:
    """Return DerSimonian and Laird's variance between seeds, 0 where takes alone explain the spread; shapes (S,)."""
    if len(points_S) < 2 or not (within_S > 0).all():
        return float(points_S.var(ddof=1)) if len(points_S) > 1 else 0.0
    weights = 1.0 / within_S
    centre = (weights * points_S).sum() / weights.sum()
    excess = (weights * (points_S - centre) ** 2).sum() - (len(points_S) - 1)
    return max(0.0, float(excess / (weights.sum() - (weights**2).sum() / weights.sum())))


def _freedom(of_takes: float, of_seeds: float, takes_S: Array) -> float:
    """Satterthwaite's degrees of freedom of a sum of two variances of a mean; infinite where both are zero."""
    spent = of_takes**2 / max(float((takes_S - 1).sum()), 1.0) + of_seeds**2 / max(len(takes_S) - 1, 1)
    return (of_takes + of_seeds) ** 2 / spent if spent > 0 else math.inf


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted for all comparisons together (Holm, 1979), in the order given."""
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
