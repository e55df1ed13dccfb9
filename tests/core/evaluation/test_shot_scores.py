"""Figures of shots: the published intervals, exact tests, areas under the curve, and the case of few takes."""

import math
from itertools import product

import numpy as np
import pytest

from schemas.events import CompletedOutcome, OutcomeRow, ShotAnswer
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.shot_scores import contrasts_of, mcnemar, scores_of, wilson
from trajpilot_core.metrics.shots import SHOT_METRICS, auc
from trajpilot_core.report.outcome_page import PUBLISHED_P

CFG = CompletedOutcome(bootstrap=500)


def answers(row: OutcomeRow, right: list[bool], seed: int = 0, takes: int = 8) -> list[ShotAnswer]:
    """Shots that alternate made and missed, of which a row has some right."""
    common = {"row": row, "seed": seed, "gate": None, "opened": None, "candidate": None}
    places = [{"shot_id": f"s{i:03d}", "take_id": f"t{i % takes}", "is_made": i % 2 == 0} for i in range(len(right))]
    said = [0.9 if place["is_made"] == is_right else 0.1 for place, is_right in zip(places, right, strict=True)]
    return [ShotAnswer.model_validate({**common, **place, "p_made": p}) for place, p in zip(places, said, strict=True)]


def test_wilsons_intervals_of_the_published_counts() -> None:
    for right, low, high in ((42, 45.4, 67.4), (47, 52.1, 73.6), (60, 70.7, 88.4), (69, 85.1, 97.1)):
        assert wilson(right, 74, 0.95) == pytest.approx((low, high), abs=0.05)


def test_mcnemars_test_is_the_tail_of_a_fair_coin() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 / 2**5)
    assert mcnemar(3, 9) == mcnemar(9, 3) == pytest.approx(2 * sum(math.comb(12, i) for i in range(4)) / 2**12)


def p_range(one: tuple[int, int], other: tuple[int, int], n: int = 37) -> tuple[float, float]:
    """Smallest and largest p over all ways in which two rows can have their right made and right missed shots, of n."""
    least = sum(max(0, b - a) for a, b in zip(one, other, strict=True))
    most = sum(min(b, n - a) for a, b in zip(one, other, strict=True))
    gain = sum(one) - sum(other)
    p_values = [mcnemar(gain + only_other, only_other) for only_other in range(least, most + 1)]
    return min(p_values), max(p_values)


def test_published_counts_bound_the_p_value_of_every_difference() -> None:
    no_traj, probe, scorer, oracle = (37, 5), (30, 17), (26, 34), (34, 35)
    assert p_range(scorer, no_traj) == pytest.approx((mcnemar(29, 11), mcnemar(32, 14)))  # made alone: 11 shots lost
    for rows, printed in (
        ((scorer, no_traj), "scorer − no_traj 0.0064 to 0.011"),
        ((scorer, probe), "scorer − attentive_probe 0.0072 to 0.060"),
        ((oracle, scorer), "oracle − scorer 0.0039 to 0.064"),
    ):
        assert printed in PUBLISHED_P
        low, high = printed.rsplit(" ", 3)[1::2]
        assert p_range(*rows) == pytest.approx((float(low), float(high)), rel=0.04)


def test_the_area_under_the_curve_counts_pairs_and_ties_half() -> None:
    rng = np.random.default_rng(0)
    p, made = rng.integers(0, 5, 40) / 4, rng.random(40) < 0.5
    weight = rng.integers(0, 3, (3, 40)).astype(float)
    pairs = [(i, j) for i, j in product(range(40), range(40)) if made[i] and not made[j]]
    for found, w in zip(auc(p, made, weight), weight, strict=True):
        won = sum(w[i] * w[j] * (float(p[i] > p[j]) + 0.5 * float(p[i] == p[j])) for i, j in pairs)
        assert found == pytest.approx(won / sum(w[i] * w[j] for i, j in pairs))


def test_a_row_that_always_answers_made_is_right_for_all_made_and_no_missed_shots() -> None:
    p, made, once = np.full(10, 0.5), np.arange(10) < 6, np.ones((1, 10))
    wanted = {"accuracy": 60.0, "balanced": 50.0, "made": 100.0, "missed": 0.0, "auc": 50.0}
    assert {name: float(SHOT_METRICS[name].values(p, made, once)[0]) for name in wanted} == wanted


def test_scores_count_shots_and_takes_and_few_takes_have_no_interval() -> None:
    found = {(s.metric, s.seed): s for s in scores_of(answers("oracle", [True] * 30 + [False] * 10), CFG)}
    whole = found["accuracy", 0]
    assert (whole.n_right, whole.n_shots, whole.n_takes, whole.value) == (30, 40, 8, 75.0)
    assert whole.low <= 75 <= whole.high
    assert found["balanced", 0].wilson_low is None
    few = scores_of(answers("oracle", [True, False] * 10, takes=3), CFG)[0]
    assert few.high == math.inf


def test_differences_are_paired_and_refuse_other_shots() -> None:
    one = answers("oracle", [True] * 30 + [False] * 10)
    other = answers("no_traj", [True] * 20 + [False] * 20)
    found = next(c for c in contrasts_of([*other, *one], CFG) if c.seed == 0)
    assert (found.only_row, found.only_against, found.difference) == (10, 0, 25.0)
    assert found.p_value == pytest.approx(mcnemar(10, 0))
    with pytest.raises(LeakError, match="different shots"):
        contrasts_of([*other, *one[:-1]], CFG)
