"""A learned row, of windows, shots or actions, counts as trained only with an interval above every floor."""

import math

import numpy as np
import pytest
from synthetic_results import a_metric, choices, curves

from schemas.arrow import rows_of
from schemas.config import EvaluationConfig
from schemas.events import ProbeScore, ShotScore
from schemas.results import CurvePoint, Judgement, Metric, ScorerChoice
from trajpilot_core.evaluation.action_scores import judge_actions
from trajpilot_core.evaluation.event_rows import SHOT_FLOORS, SHOT_MODELS, SHOT_ROWS, TOKEN_MODELS, TOKEN_NAMES
from trajpilot_core.evaluation.shot_scores import row_judgements
from trajpilot_core.evaluation.trained_rows import (
    FLOORS,
    ROW,
    gate_quality,
    is_learned,
    judge_row,
    judge_rows,
    judge_scorer,
    judge_scores,
    ranking_quality,
    undertrained_rows,
)
from trajpilot_core.methods import METHODS
from trajpilot_core.metrics.epic_kitchens import ACTION
from trajpilot_core.report.action_page import result_tables
from trajpilot_core.report.tables.table import DAGGER, LEGEND

MODELS = {one.id: one.models for one in METHODS}


def figure(row: str, value: float, low: float, horizon: int | None = None) -> Metric:
    pooling = "plain" if horizon is None else "none"
    return a_metric(variant=row, horizon=horizon, pooling=pooling, value=value, low=low)


def table(**rows: tuple[float, float]) -> list[Metric]:
    floors = {"majority": (2.0, 1.0), "previous": (6.5, 5.0), "knn_labels": (8.0, 7.0)}
    return [figure(row, *values) for row, values in {**floors, **rows}.items()]


def verdicts(metrics: list[Metric]) -> dict[str, str]:
    return {one.check.removeprefix(ROW): one.verdict for one in judge_rows(metrics, "M@1")}


def test_a_row_at_zero_or_at_the_level_of_a_floor_is_undertrained() -> None:
    found = verdicts(table(oracle=(30.0, 25.0), no_traj=(0.0, 0.0), schema=(9.0, 6.4)))
    assert found == {"oracle": "holds", "no_traj": "undertrained", "schema": "undertrained"}


def test_a_floor_that_retrieves_by_motion_counts_only_for_rows_that_are_given_this_motion() -> None:
    found = verdicts(table(no_traj=(8.0, 7.0), endpoint_traj=(8.0, 7.0), scorer=(9.0, 8.1)))
    assert found == {"no_traj": "holds", "endpoint_traj": "undertrained", "scorer": "holds"}


def test_a_paired_difference_decides_where_there_is_one() -> None:
    rows = table(scorer=(9.0, 7.5))
    assert verdicts(rows) == {"scorer": "undertrained"}
    for lead, verdict in ((0.2, "holds"), (-0.2, "undertrained")):
        paired = a_metric(variant="scorer", reference="knn_labels", horizon=None, pooling="plain", value=1.0, low=lead)
        assert verdicts([*rows, paired]) == {"scorer": verdict}
    above_another = a_metric(variant="scorer", reference="previous", horizon=None, pooling="plain", value=2.5, low=1.0)
    assert verdicts([*rows, above_another]) == {"scorer": "undertrained"}


def test_every_floor_counts_and_without_interval_or_floor_a_row_is_undertrained() -> None:
    for floor in ("majority", "previous", "knn_labels"):
        rows = {"majority": (2.0, 1.0), "previous": (2.0, 1.0), "knn_labels": (2.0, 1.0), floor: (20.0, 1.0)}
        assert verdicts(table(oracle=(30.0, 19.9), **rows)) == {"oracle": "undertrained"}
        assert verdicts(table(oracle=(30.0, 20.1), **rows)) == {"oracle": "holds"}
    assert verdicts(table(oracle=(30.0, -math.inf))) == {"oracle": "undertrained"}
    assert verdicts([figure("oracle", 30.0, 25.0)]) == {"oracle": "undertrained"}


def test_a_row_without_a_goal_has_its_own_floor() -> None:
    floor, row = "anticipation_majority", "anticipation_no_traj"
    assert {floor, row} <= set(MODELS)
    assert verdicts(table(**{floor: (3.0, 2.0), row: (7.0, 4.0)})) == {row: "holds"}
    assert verdicts(table(**{floor: (5.0, 2.0), row: (7.0, 4.0)})) == {row: "undertrained"}


def test_a_row_that_lacks_a_horizon_is_judged_at_each_that_it_has() -> None:
    floors = [figure(row, 5.0, 4.0, h) for row in FLOORS[:3] for h in (3, 4)]
    assert verdicts([*floors, figure("schema", 9.0, 8.0, 3), figure("schema", 9.0, 8.0, 4)]) == {"schema": "holds"}
    found = judge_rows([*floors, figure("schema", 9.0, 8.0, 3), figure("schema", 9.0, 4.0, 4)], "M@1")
    assert [(one.verdict, "H=4" in one.detail) for one in found] == [("undertrained", True)]


def test_floors_and_controls_with_models_of_another_row_are_not_judged_by_their_level() -> None:
    learned = {one.id for one in METHODS if is_learned(one)}
    assert {"no_traj", "oracle", "scorer", "schema", "cem", "latent_no_traj"} <= learned
    assert not learned & {*FLOORS, "shuffled", "top1", "pool_mean", "hmm", "qwen_zs", "graph_only"}


def test_weak_rows_and_weak_models_mark_rows_and_a_seed_counts_its_own_models_only() -> None:
    row = judge_row(f"{ROW}oracle", 1.0, {"Majority": 2.0}, "M@1")
    model = Judgement(check="trained: final/no_traj, seed 1", verdict="undertrained", detail="")
    assert undertrained_rows([row], MODELS) == {"oracle"}
    assert "no_traj" in undertrained_rows([model], MODELS)
    assert "no_traj" not in undertrained_rows([model], MODELS, seed=0)
    assert undertrained_rows([row, model], MODELS, seed=0) == {"oracle"}


# Rows of shots and of actions.


def shot(row: str, value: float, low: float) -> ShotScore:
    return ShotScore.model_validate(
        {"row": row, "seed": None, "metric": "accuracy", "value": value, "low": low, "high": 99.0,
         "n_shots": 74, "n_takes": 9}
    )  # fmt: skip


def probe(row: str, value: float, low: float, seed: int = 0) -> ProbeScore:
    return ProbeScore.model_validate(
        {"row": row, "seed": seed, "metric": ACTION.id, "subset": "overall", "space": "challenge", "value": value,
         "low": low, "high": 99.0, "n_clips": 90, "n_classes": 9, "n_takes": 9, "trial": "t"}
    )  # fmt: skip


def test_a_trained_row_of_shots_is_above_the_larger_class_and_the_vote() -> None:
    floors = [shot("majority", 52.0, 50.0), shot("knn_outcome", 55.0, 50.0)]
    rows = [shot("no_traj", 60.0, 54.0), shot("oracle", 70.0, 56.0), shot("permuted_candidates", 40.0, 30.0)]
    found = {one.check.removeprefix(ROW): one.verdict for one in row_judgements([*floors, *rows])}
    assert found == {"no_traj": "undertrained", "oracle": "holds"}
    every = {one.id for one in SHOT_ROWS} - {"permuted_candidates"}
    assert {*SHOT_MODELS, *SHOT_FLOORS} == every


def test_a_trained_probe_is_above_the_most_frequent_answers_with_every_seed() -> None:
    floor = probe("majority", 10.0, 9.0)
    verdicts = [
        judge_actions([floor, *(probe("probe", 20.0, low, n) for n, low in enumerate(lows))], ["probe"], "majority")
        for lows in ((11.0, 12.0), (11.0, 9.0), (0.0,))
    ]
    assert [[one.verdict for one in found] for found in verdicts] == [["holds"], ["undertrained"], ["undertrained"]]
    assert judge_actions([floor], ["probe"], "majority") == []
    assert set(TOKEN_MODELS) == set(TOKEN_NAMES)


def test_a_table_of_actions_marks_the_row_and_explains_the_mark_once() -> None:
    scores = [probe("majority", 10.0, 9.0), probe("probe", 20.0, 8.0)]
    marked, plain = (result_tables(scores, weak)[0].markdown() for weak in (frozenset({"probe"}), frozenset[str]()))
    assert f"attentive probe{DAGGER} |" in marked
    assert marked.count(LEGEND) == 1
    assert DAGGER not in plain


def test_a_curve_that_falls_by_half_is_not_trained_whatever_its_best() -> None:
    rising = [0.1, 0.4, 0.7, 0.8, 0.8, 0.8]
    floors = {"majority": 0.1, "previous": 0.2}
    assert judge_scores("", [*rising, 0.8, 0.8], floors).verdict == "holds"
    fallen = judge_scores("", [*rising, 0.5, 0.3], floors)
    assert (fallen.verdict, fallen.detail.endswith("fallen from its best")) == ("undertrained", True)


# A scorer is judged by its gate and its ranking on dev, never by the score of its fallback.


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
    of_take = [[one for one in made if one.take == take] for take in range(12)]
    drawn = []
    for _ in range(200):
        again = [
            one.model_copy(update={"take": n}) for n, at in enumerate(rng.integers(0, 12, 12)) for one in of_take[at]
        ]
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
