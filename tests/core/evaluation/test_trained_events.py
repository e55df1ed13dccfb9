"""Rows of shots and of actions count as trained by the rule of planning, and their tables mark those that do not."""

from schemas.events import ProbeScore, ShotScore
from trajpilot_core.evaluation.action_scores import judge_actions
from trajpilot_core.evaluation.shot_rows import FLOORS, METHODS, MODELS
from trajpilot_core.evaluation.shot_scores import row_judgements
from trajpilot_core.evaluation.token_rows import MODELS as TOKEN_MODELS
from trajpilot_core.evaluation.token_rows import TOKEN_NAMES
from trajpilot_core.evaluation.trained_rows import ROW
from trajpilot_core.metrics.epic_kitchens import ACTION
from trajpilot_core.report.action_page import result_tables
from trajpilot_core.report.tables.names import DAGGER, LEGEND
from trajpilot_core.training.convergence import judge_scores


def shot(row: str, value: float, low: float) -> ShotScore:
    return ShotScore.model_validate(
        {"row": row, "seed": None, "metric": "accuracy", "value": value, "low": low, "high": 99.0, "wilson_low": None,
         "wilson_high": None, "n_right": None, "n_shots": 74, "n_takes": 9}
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
    assert {*MODELS, *FLOORS} == {one.id for one in METHODS} - {"permuted_candidates"}


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
    marked, plain = (result_tables(scores, {}, weak)[0].markdown() for weak in (frozenset({"probe"}), frozenset[str]()))
    assert f"attentive probe{DAGGER} |" in marked
    assert marked.count(LEGEND) == 1
    assert DAGGER not in plain


def test_a_curve_that_falls_by_half_is_not_trained_whatever_its_best() -> None:
    rising = [0.1, 0.4, 0.7, 0.8, 0.8, 0.8]
    floors = {"majority": 0.1, "previous": 0.2}
    assert judge_scores("", [*rising, 0.8, 0.8], floors).verdict == "holds"
    fallen = judge_scores("", [*rising, 0.5, 0.3], floors)
    assert (fallen.verdict, fallen.detail.endswith("fallen from its best")) == ("undertrained", True)
