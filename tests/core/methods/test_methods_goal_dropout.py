"""Rows of goal-dropout twins: present where twins were trained, answered by their weights, refused for wrong sight."""

from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from planning_fixture import PREDICTOR, model_files, models_of, planning_data
from rows_fixture import CONFIG, predicted, quiet, scorers_of

from schemas.results import Judgement
from schemas.training import GOAL_DROPOUT
from trajpilot_core.data.chains import ModelFiles
from trajpilot_core.data.cross_fitting import original_of
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.predictions import predict_rows
from trajpilot_core.methods import METHODS, anticipation
from trajpilot_core.methods.predictors import NO_TRAJ_GOAL_DROPOUT as NO_TRAJ
from trajpilot_core.methods.predictors import ORACLE_GOAL_DROPOUT as ORACLE
from trajpilot_core.report.tables.results import results_of

ORIGINAL = {NO_TRAJ.id: "no_traj", ORACLE.id: "oracle"}
"""Row -> the row without goal dropout."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    data = planning_data()
    files = model_files(data, config=PREDICTOR.replace(twin_goal_dropout=GOAL_DROPOUT))
    return data, files, scorers_of(data, files, tmp_path_factory.mktemp("scorers"), threshold=0.5)


@pytest.fixture(scope="module")
def table(made):
    return predicted(*made)[0]


def of(table: pa.Table, row: str) -> pa.Table:
    return table.filter(pc.equal(table["variant"], row)).drop_columns(["variant"])


def holding(files: ModelFiles, key_of) -> ModelFiles:
    """The same files with the weights of `key_of(key)` at each key; None removes a key."""
    there = {key: key_of(key) for key in files.predictors.keys}
    weights = {key: files.predictors.read(held) for key, held in there.items() if held is not None}
    return files._replace(predictors=models_of(weights, files.predictors.about))


def test_rows_are_present_where_twins_were_trained_and_change_no_other(made, table):
    data, files, scorers = made
    bare = predicted(data, holding(files, lambda key: key if key == original_of(key) else None), scorers)[0]
    rows, of_bare = (set(pc.unique(t["variant"]).to_pylist()) for t in (table, bare))
    assert rows - of_bare == set(ORIGINAL)
    assert table.filter(pc.invert(pc.is_in(table["variant"], value_set=pa.array(ORIGINAL)))).equals(bare)


def test_they_answer_as_their_originals_do_but_by_the_weights_of_the_twins(made, table):
    """The planted fault: the originals' weights where the twins' should be."""
    data, files, scorers = made
    for row, original in ORIGINAL.items():
        assert of(table, row)["top_scores"].to_pylist() != of(table, original)["top_scores"].to_pylist()
    planted = predicted(data, holding(files, original_of), scorers)[0]
    for row, original in ORIGINAL.items():
        assert of(planted, row).equals(of(planted, original))


def test_a_twin_of_oracle_that_hides_what_motion_it_sees_is_refused(made, monkeypatch):
    others = [one for one in METHODS if one.id != ORACLE.id]
    for sees in ("ends", "end_motion"):
        monkeypatch.setattr("trajpilot_core.evaluation.predictions.METHODS", [*others, replace(ORACLE, sees=sees)])
        with pytest.raises(LeakError, match=f"id {ORACLE.id}$"):
            list(predict_rows(*made, CONFIG, "test", "cpu", quiet))


def test_a_twin_that_is_not_trained_marks_its_rows_and_no_other():
    def marked(model: str) -> frozenset[str]:
        check = Judgement(check=f"trained: final/{model}, seed 1", verdict="undertrained", detail="")
        return results_of([], [check]).undertrained

    scored = {anticipation.SCORER.id}
    assert marked("traj_goal_dropout") == {ORACLE.id, anticipation.ORACLE.id} | scored
    assert marked("no_traj_goal_dropout") == {NO_TRAJ.id, anticipation.NO_TRAJ.id} | scored
    assert not marked("traj") & set(ORIGINAL)
