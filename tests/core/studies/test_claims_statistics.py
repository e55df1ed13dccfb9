"""Figures over takes and seeds: intervals that cover, equivalence with its power, Holm against a hand-worked case."""

import math

import numpy as np
import pytest

from schemas.claims import ClaimsConfig
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.statistics import Profile, Sums, estimate, plain_mean
from trajpilot_core.studies.claims.verdicts.judge import equivalence_verdict

CFG = ClaimsConfig(bootstrap=1000)
N_H = len(CFG.horizons)
MEAN = plain_mean(N_H)


def world_of(rng: np.random.Generator, level: float, n_takes: int, spread: float) -> Sums:
    """Sums of one seed: percentages around `level` with a deviation of `spread` per take."""
    counts = rng.integers(4, 10, (n_takes, N_H)).astype(float)
    of_take = rng.normal(level, spread, (n_takes, 1)) + rng.normal(0, 1, (n_takes, N_H))
    return Sums(of_take * counts, counts)


def profile_of(levels: tuple[float, ...], n_takes: int = 60, spread: float = 4.0, seed: int = 0) -> Profile:
    rng = np.random.default_rng(seed)
    return statistics.profile("w", {s: world_of(rng, level, n_takes, spread) for s, level in enumerate(levels)}, CFG)


def exact(points: tuple[float, ...], errors: tuple[float, ...], n_takes: int = 1000) -> Profile:
    """A profile with the given value and standard error per seed (the draws are normal quantiles)."""
    quantiles = np.linspace(-3, 3, 2001)
    unit = quantiles / quantiles.std(ddof=1)
    draws = np.stack([np.repeat((p + e * unit)[:, None], N_H, axis=1) for p, e in zip(points, errors, strict=True)])
    takes = tuple(n_takes for _ in points)
    return Profile(tuple(range(len(points))), np.repeat(np.array(points)[:, None], N_H, axis=1), draws, takes, 9000)


def test_the_figure_is_the_plain_mean_over_horizons_and_then_over_seeds() -> None:
    counts = np.array([[1.0, 9.0, 1, 1, 1, 1], [3.0, 1.0, 1, 1, 1, 1]])
    sums = counts * np.array([[10.0, 20, 0, 0, 0, 0], [30.0, 40, 0, 0, 0, 0]])
    both = statistics.profile("w", {0: Sums(sums, counts), 1: Sums(2 * sums, counts)}, CFG)
    by_hand = ((10 + 90) / 4 + (180 + 40) / 10) / N_H
    assert estimate(both, MEAN, 0.95).value == pytest.approx(1.5 * by_hand)
    assert estimate(both, MEAN, 0.95).per_seed == ((0, pytest.approx(by_hand)), (1, pytest.approx(2 * by_hand)))


def test_intervals_over_takes_within_seeds_cover_the_truth() -> None:
    hits = 0
    for trial in range(200):
        read = estimate(profile_of((5.0, 5.0, 5.0), n_takes=25, seed=trial), MEAN, 0.95)
        hits += read.low <= 5.0 <= read.high
    assert 0.90 <= hits / 200 <= 0.99


def test_two_worlds_share_no_draws_and_the_rows_of_one_world_share_all() -> None:
    one, same, other = (statistics.world_weights(w, 0, 30, 100, 1) for w in ("a", "a", "b"))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one, statistics.world_weights("a", 1, 30, 100, 1))


def test_few_takes_give_no_interval() -> None:
    assert math.isinf(estimate(profile_of((5.0, 5.0), n_takes=5), MEAN, 0.95).low)


def test_the_slope_of_a_straight_profile_is_its_step() -> None:
    straight = exact((0.0,), (1.0,))
    points = straight.points + 1.7 * np.arange(N_H)
    draws = straight.draws + 1.7 * np.arange(N_H)
    read = estimate(Profile((0,), points, draws, (50,), 1), statistics.slope_weights(CFG.horizons), 0.95)
    assert read.value == pytest.approx(1.7)
    assert read.low == pytest.approx(1.7)


def test_a_p_value_is_small_only_where_the_draws_leave_zero() -> None:
    draws = np.linspace(-1.0, 19.0, 1999)
    assert statistics.two_sided_p(draws) == pytest.approx(2 * 101 / 2000, abs=2e-3)
    assert statistics.two_sided_p(draws - 9.0) == pytest.approx(1.0, abs=5e-3)
    assert statistics.two_sided_p(draws + 5.0) == pytest.approx(2 / 2000)


def test_the_last_bit_of_a_draw_decides_no_p_value() -> None:
    """The planted fault: draws at zero that another order of a sum has moved to either side."""
    zeros, others = np.zeros(40), np.linspace(1.0, 2.0, 59)
    moved = {statistics.two_sided_p(np.concatenate([zeros + bit, others])) for bit in (0.0, 1e-15, -1e-15)}
    assert moved == {2 * 41 / 100}


def test_rows_that_answer_alike_have_no_power() -> None:
    alike = statistics.equivalence(exact((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)), MEAN, CFG)
    assert math.isnan(alike.power)
    assert statistics.has_nothing_to_compare(exact((0.1, 0.0, 0.2), (1.0, 0.0, 1.0)))
    assert not statistics.has_nothing_to_compare(exact((0.1, 0.0, 0.2), (1.0, 1.0, 1.0)))


def test_p_values_of_nothing_are_spread_evenly() -> None:
    """Three seeds without an effect: 5 % and 20 % of the p-values lie below 0.05 and 0.2."""
    found = np.array([estimate(profile_of((0.0, 0.0, 0.0), 40, seed=s), MEAN, 0.95).p for s in range(300)])
    assert 0.02 <= (found < 0.05).mean() <= 0.09
    assert 0.13 <= (found < 0.2).mean() <= 0.27


def test_holm_gives_the_values_worked_by_hand() -> None:
    """Sorted 0.005, 0.01, 0.03, 0.04: times 4, 3, 2, 1 is 0.02, 0.03, 0.06, 0.04; never below the one before."""
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])
    assert statistics.holm([]) == []


def test_seeds_that_agree_have_no_variance_between_them() -> None:
    assert statistics.between_variance(np.array([1.0, 1.1, 0.9]), np.array([1.0, 1.0, 1.0])) == 0.0


def test_the_variance_between_seeds_is_that_of_dersimonian_and_laird() -> None:
    """Equal variances v: Q = sum (d - mean)^2 / v, tau^2 = (Q - 2) / (2 / v) = s^2 - v."""
    points = np.array([0.0, 3.0, 6.0])
    assert statistics.between_variance(points, np.array([0.5, 0.5, 0.5])) == pytest.approx(9.0 - 0.5)


def test_equivalence_at_the_target_standard_error_has_about_90_percent_power() -> None:
    tested = statistics.equivalence(exact((0.0, 0.0, 0.0), (0.46 * 3**0.5,) * 3), MEAN, CFG)
    assert tested.standard_error == pytest.approx(0.46, abs=1e-3)
    assert tested.power == pytest.approx(89, abs=1.5)
    rng = np.random.default_rng(1)
    found = np.abs(rng.normal(0, 0.46, 20_000)) + 1.645 * 0.46 < CFG.margin
    assert tested.power == pytest.approx(100 * found.mean(), abs=1.0)


@pytest.mark.parametrize(
    ("points", "error", "verdict"),
    [
        ((0.1, -0.2, 0.2), 0.4, "holds"),
        ((5.0, 5.2, 4.9), 0.4, "fails"),
        ((-4.0, -4.1, -4.2), 0.4, "fails"),
        ((1.2, 1.3, 1.1), 0.4, "undecided"),
        ((0.0, 0.0, 0.0), 1.2, "undecided"),
        ((-2.5, 0.0, 2.5), 0.2, "undecided"),
    ],
    ids=["equal", "above", "below", "straddles", "too few takes", "seeds disagree"],
)
def test_equivalence_is_judged_by_margin_standard_error_and_seeds(
    points: tuple[float, ...], error: float, verdict: str
) -> None:
    assert equivalence_verdict(statistics.equivalence(exact(points, (error,) * 3), MEAN, CFG), CFG) == verdict


def test_a_precise_zero_without_seed_variance_would_hold_where_seeds_disagree() -> None:
    """The planted fault: takes alone would call worlds that differ by 2.5 points each way equivalent."""
    spread = exact((-2.5, 0.0, 2.5), (0.2,) * 3)
    over_takes = estimate(spread, MEAN, CFG.equivalence_level)
    assert -CFG.margin < over_takes.low < over_takes.high < CFG.margin
    assert statistics.equivalence(spread, MEAN, CFG).high > CFG.margin


def test_a_ratio_is_resampled_as_one() -> None:
    bottom = exact((10.0, 12.0), (1.0, 1.0))
    top = Profile(bottom.seeds, 0.5 * bottom.points, 0.5 * bottom.draws, bottom.n_takes, 1)
    read = statistics.ratio(top, bottom, MEAN, 0.95)
    assert (read.value, read.low, read.high) == pytest.approx((0.5, 0.5, 0.5))
