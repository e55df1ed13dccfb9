"""A scorer is judged by its gate and its ranking on dev, never by the score of its fallback."""

import math

import numpy as np
import pytest
from synthetic_results import choices, curves

from schemas.arrow import rows_of
from schemas.config import EvaluationConfig
from schemas.results import CurvePoint, ScorerChoice
from trajpilot_core.evaluation.trained_rows import gate_quality, judge_scorer, ranking_quality

CFG = EvaluationConfig(bootstrap=500)
CURVE = rows_of(CurvePoint, curves()["scorer_curves"])


def judged(made: list[ScorerChoice], curve: list[CurvePoint] = CURVE) -> tuple[str, str]:
    found = judge_scorer("trained: final/scorer, seed 0", made, curve, CFG)
    return found.verdict, found.detail


def test_a_scorer_that_decides_is_trained_and_one_at_chance_is_not_whatever_its_score() -> None:
    assert judged(choices(0.5))[0] == "holds"
    verdict, detail = judged(choices(0.0))
    assert verdict == "undertrained"
    assert "best candidate first not above chance" in detail
    assert "gate, area under its curve not above chance" in detail
    assert "dev M@1 40.0 %" in detail


def test_either_at_chance_is_enough() -> None:
    good, bad = choices(0.6), choices(0.0)
    for taken in (("gate", "should_open"), ("is_best", "chance")):
        mixed = [a.replace(**{name: getattr(b, name) for name in taken}) for a, b in zip(good, bad, strict=True)]
        verdict, detail = judged(mixed)
        assert (verdict, ("gate, area under its curve not" in detail)) == ("undertrained", "gate" in taken)


def test_a_gate_that_gains_nothing_over_the_fallback_is_not_trained() -> None:
    level = [row.replace(value=0.4) if row.quantity == "fallback M@1" else row for row in CURVE]
    assert judged(choices(0.6), level)[0] == "undertrained"


def test_few_takes_show_nothing() -> None:
    few = [one for one in choices(1.0) if one.take < 5]
    assert judged(few)[0] == "undertrained"
    assert "too few takes" in judged(few)[1]
    assert judged([])[0] == "undertrained"
    assert judged([one.replace(is_best=None, chance=None) for one in choices(1.0)])[0] == "undertrained"


def test_the_area_is_that_of_pairs_of_one_horizon_counted_one_by_one() -> None:
    made = choices(0.3)[:80]
    won = [
        (a.gate > b.gate) + 0.5 * (a.gate == b.gate)
        for a in made
        for b in made
        if a.horizon == b.horizon and a.should_open and not b.should_open
    ]
    assert gate_quality(made, CFG).value == pytest.approx(100 * np.mean(won))


def test_an_interval_is_that_of_resampled_takes() -> None:
    made, rng = choices(0.2), np.random.default_rng(1)
    drawn = []
    for _ in range(200):
        takes = rng.integers(0, 12, 12)
        again = [one.replace(take=n) for n, take in enumerate(takes) for one in made if one.take == take]
        drawn.append(gate_quality(again, EvaluationConfig(bootstrap=100)).value)
    found = gate_quality(made, CFG)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=2.0)
    assert found.high == pytest.approx(high, abs=2.0)


def test_ranking_is_held_against_the_share_of_best_candidates_and_windows_without_any_do_not_count() -> None:
    made = choices(0.0)
    found = ranking_quality([*made, *(one.replace(is_best=None, chance=None) for one in made)], CFG)
    assert found == ranking_quality(made, CFG)
    assert found.chance == pytest.approx(6.25)
    assert found.low < found.value < found.high
    assert math.isnan(ranking_quality([one.replace(is_best=None, chance=None) for one in made], CFG).value)
