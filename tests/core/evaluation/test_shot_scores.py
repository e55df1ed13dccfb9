"""Figures of shots: areas under the curve, paired differences, and the case of few takes."""

import math
from itertools import product

import numpy as np
import pytest

from schemas.events import CompletedOutcome, OutcomeRow, ShotAnswer
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.shot_scores import contrasts_of, scores_of
from trajpilot_core.metrics.shots import SHOT_METRICS, auc

CFG = CompletedOutcome(bootstrap=500)


def answers(row: OutcomeRow, right: list[bool], seed: int = 0, takes: int = 8) -> list[ShotAnswer]:
    """Shots that alternate made and missed, of which a row has some right."""
    common = {"row": row, "seed": seed, "gate": None, "opened": None, "candidate": None}
    places = [{"shot_id": f"s{i:03d}", "take_id": f"t{i % takes}", "is_made": i % 2 == 0} for i in range(len(right))]
    said = [0.9 if place["is_made"] == is_right else 0.1 for place, is_right in zip(places, right, strict=True)]
    return [ShotAnswer.model_validate({**common, **place, "p_made": p}) for place, p in zip(places, said, strict=True)]


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
    assert (whole.n_shots, whole.n_takes, whole.value) == (40, 8, 75.0)
    assert whole.low <= 75 <= whole.high
    few = scores_of(answers("oracle", [True, False] * 10, takes=3), CFG)[0]
    assert few.high == math.inf


def test_differences_are_paired_and_refuse_other_shots() -> None:
    one = answers("oracle", [True] * 30 + [False] * 10)
    other = answers("no_traj", [True] * 20 + [False] * 20)
    found = next(c for c in contrasts_of([*other, *one], CFG) if c.seed == 0)
    assert found.difference == 25.0
    with pytest.raises(LeakError, match="different shots"):
        contrasts_of([*other, *one[:-1]], CFG)
