"""A learned row counts as trained only where the lower end of its interval is above every floor of its table."""

import math

from synthetic_results import a_metric

from schemas.results import Judgement, Metric
from trajpilot_core.evaluation.trained_rows import FLOORS, ROW, is_learned, judge_rows, undertrained_rows
from trajpilot_core.methods import METHODS
from trajpilot_core.training.convergence import judge_row

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
