"""Intervals over takes: their coverage, and that windows are never resampled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trajpilot_core.evaluation import bootstrap


def clustered(rng: np.random.Generator, n_takes: int, per_take: int) -> tuple[np.ndarray, np.ndarray]:
    """Right or wrong (0, 100) per window, with a level per take; the true mean is 40. Returns (N, 1), (N,)."""
    level = rng.beta(2.0, 3.0, n_takes)
    counts = rng.integers(per_take // 2, per_take * 3 // 2, n_takes)
    takes = np.repeat(np.arange(n_takes), counts)
    return 100.0 * (rng.random(len(takes)) < level[takes])[:, None], takes


def interval_of(values: np.ndarray, clusters: np.ndarray, n: int, weights: np.ndarray) -> tuple[float, float]:
    sums, counts = bootstrap.cluster_sums(values, clusters, n)
    draws = bootstrap.resampled(weights, sums[:, None], counts[:, None])[:, :1]
    low, high = bootstrap.interval(draws, np.array([n]), 0.95)
    return float(low[0, 0]), float(high[0, 0])


def covered(n_takes: int, trials: int, by_window: bool = False) -> float:
    rng = np.random.default_rng(7)
    weights = bootstrap.draw_weights(n_takes, 1000, 0)
    hits = 0
    for _ in range(trials):
        values, takes = clustered(rng, n_takes, 20)
        if by_window:
            few = np.arange(len(takes)) // max(1, len(takes) // n_takes)
            takes = rng.permutation(np.minimum(few, n_takes - 1))
        low, high = interval_of(values, takes, n_takes, weights)
        hits += low <= 40.0 <= high
    return hits / trials


def test_a_95_percent_interval_covers_the_truth_in_93_to_97_percent_and_few_takes_get_honest_ones() -> None:
    """The planted fault, which ignores the takes: windows dealt to takes at random, as if they were independent."""
    assert 0.93 <= covered(50, 1500) <= 0.97
    assert covered(12, 800) >= 0.925
    assert covered(bootstrap.MIN_CLUSTERS, 800) >= 0.915
    assert covered(50, 300, by_window=True) < 0.85


def test_the_bootstrap_agrees_with_one_that_resamples_takes_by_hand() -> None:
    values, takes = clustered(np.random.default_rng(3), 25, 12)
    weights = bootstrap.draw_weights(25, 500, 1)
    sums, counts = bootstrap.cluster_sums(values, takes, 25)
    fast = bootstrap.resampled(weights, sums[:, None], counts[:, None])[:, 0, 0]
    for row, got in zip(weights[:40].astype(int), fast, strict=False):
        chosen = np.concatenate([values[takes == take, 0] for take in np.repeat(np.arange(25), row)])
        assert got == pytest.approx(chosen.mean())


def test_too_few_takes_give_no_interval() -> None:
    for n_takes in range(1, bootstrap.MIN_CLUSTERS):
        weights = bootstrap.draw_weights(n_takes, 100, 0)
        draws = bootstrap.resampled(weights, np.arange(n_takes, dtype=float)[:, None, None], np.ones((n_takes, 1)))
        low, high = bootstrap.interval(draws, np.full(3, n_takes), 0.95)
        assert np.isneginf(low).all()
        assert np.isposinf(high).all()


def test_a_resample_without_windows_of_a_horizon_is_left_out() -> None:
    """Only one of six takes has long windows: some resamples have none of them."""
    sums, counts = np.zeros((6, 2, 1)), np.ones((6, 2))
    sums[:, 0, 0], sums[0, 1, 0], counts[1:, 1] = 10.0 * np.arange(6), 50.0, 0.0
    draws = bootstrap.resampled(bootstrap.draw_weights(6, 400, 0), sums, counts)
    assert np.isnan(draws).any()
    low, high = bootstrap.interval(draws, np.array([6, 6, 6, 6]), 0.95)
    assert np.isfinite([low, high]).all()


@settings(max_examples=30)
@given(st.integers(2, 60), st.integers(0, 1000))
def test_every_resample_has_as_many_takes_as_the_sample(n_takes: int, seed: int) -> None:
    weights = bootstrap.draw_weights(n_takes, 50, seed)
    assert (weights.sum(axis=1) == n_takes).all()
    assert np.array_equal(weights, bootstrap.draw_weights(n_takes, 50, seed))


@settings(max_examples=30)
@given(st.integers(2, 400))
def test_fewer_takes_widen_the_interval(n_takes: int) -> None:
    assert bootstrap.tail(0.95, n_takes) < bootstrap.tail(0.95, n_takes + 1) < 0.025
