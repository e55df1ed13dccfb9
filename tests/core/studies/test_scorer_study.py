"""The study of the paper's scorer: parts of the queries, qualities of ranking and gate, some worked by hand."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from planning_fixture import SCORER, model_files, planning_data

from schemas.checks import StudyConfig
from schemas.results import ScorerStudy
from trajpilot_core.data.chains import chains_of
from trajpilot_core.retrieval.bank import chain_view
from trajpilot_core.studies.scorer_study import gate_areas, queries_of_test, row_of, spearman, study_seed

CFG = StudyConfig(shares=(50.0, 100.0), first=2)


def quiet(done: int, total: int, what: str) -> None:
    """Ignore progress."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[ScorerStudy]:
    data = planning_data()
    config = SCORER.replace(ablations=(), plus=None)
    folder = tmp_path_factory.mktemp("study")
    return list(study_seed(data, model_files(data), config, CFG, 0, folder, "cpu", quiet))


def get(rows: list[ScorerStudy], quantity: str, share: float = 100.0, horizon: int | None = None) -> ScorerStudy:
    (found,) = [r for r in rows if (r.quantity, r.share, r.horizon) == (quantity, share, horizon)]
    return found


def test_a_share_is_a_share_of_the_queries(rows: list[ScorerStudy]) -> None:
    half, whole = get(rows, "M@1", 50.0), get(rows, "M@1")
    assert half.n_queries == round(whole.n_queries / 2)
    assert half.n_windows == whole.n_windows > 0


def test_the_row_is_the_fallback_and_what_the_opened_windows_changed(rows: list[ScorerStudy]) -> None:
    for horizon in {r.horizon for r in rows} - {None}:
        row, fallback = get(rows, "M@1", horizon=horizon), get(rows, "fallback M@1", horizon=horizon)
        if get(rows, "open rate", horizon=horizon).value == 0:
            assert row.value == fallback.value
        assert 0 <= row.value <= 100


def test_over_all_horizons_it_is_the_plain_mean(rows: list[ScorerStudy]) -> None:
    each = [r.value for r in rows if r.quantity == "M@1" and r.share == 100.0 and r.horizon is not None]
    assert math.isclose(get(rows, "M@1").value, sum(each) / len(each), abs_tol=1e-6)


def test_the_correlation_of_a_ranking_with_the_utilities_is_worked_by_hand() -> None:
    rank = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [1.0, 2.0, -torch.inf], [1.0, 1.0, 1.0]])
    utility = torch.tensor([[0.9, 0.5, 0.1], [0.9, 0.5, 0.1], [0.9, 0.5, -torch.inf], [0.9, 0.5, 0.1]])
    found = spearman(rank, utility)
    assert found[:2].tolist() == [1.0, -1.0]
    assert np.isnan(found[2:]).all()


def test_the_area_under_the_gates_curve_is_worked_by_hand() -> None:
    """Of the four pairs of a good and a bad window the gate orders three rightly."""
    gate = torch.tensor([0.9, 0.4, 0.5, 0.1, 0.3, 0.2])
    target = torch.tensor([True, True, False, False, True, True])
    areas = gate_areas(gate, target, torch.tensor([1, 1, 1, 1, 2, 2]))
    assert areas[:4].tolist() == [0.75] * 4
    assert np.isnan(areas[4:]).all()


def test_windows_without_a_value_are_not_counted(tmp_path: Path) -> None:
    data = planning_data()
    config = SCORER.replace(ablations=(), plus=None)
    test = queries_of_test(chain_view(data, model_files(data), chains_of(data)[0], 0, "cpu"), config, 0, tmp_path)
    assert test is not None
    values = np.full(len(test), np.nan)
    values[0] = 40.0
    row = row_of("x", values, None, test, (0, 100.0, 1))
    assert (row.value, row.n_windows) == (40.0, 1)


def test_equal_inputs_give_equal_rows(rows: list[ScorerStudy], tmp_path: Path) -> None:
    data = planning_data()
    config = SCORER.replace(ablations=(), plus=None)
    again = list(study_seed(data, model_files(data), config, CFG, 0, tmp_path, "cpu", quiet))
    assert again == rows
