"""Rows without a goal: there where twins anticipate, next to the others, and blind to all that the last step shows."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from planning_fixture import PREDICTOR, model_files, planning_data
from rows_fixture import CONFIG, predicted, quiet, scorers_of
from torch import Tensor

from schemas.training import GOAL_DROPOUT, PredictorConfig
from trajpilot_core.data.chains import ModelFiles, chains_of
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.errors import LeakError, MethodError
from trajpilot_core.evaluation.prediction_arrays import predictions_of
from trajpilot_core.evaluation.predictions import predict_rows
from trajpilot_core.evaluation.tables import metric_rows, scored_on, take_clusters
from trajpilot_core.methods import METHODS, method, plans
from trajpilot_core.methods.anticipation import NO_TRAJ, ORACLE, ROWS
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.batch import Anticipation, WindowBatch
from trajpilot_core.methods.sight import probe_rows, same
from trajpilot_core.metrics import of_table
from trajpilot_core.report.tables.anticipation import anticipation_tables
from trajpilot_core.report.tables.results import all_tables, results_of
from trajpilot_core.retrieval import candidates
from trajpilot_core.retrieval.bank import ChainView, chain_view, goal_dropout_view, without_goal
from trajpilot_core.retrieval.candidates import fallback_plans

torch.set_num_threads(1)
TWINS = PREDICTOR.replace(twin_goal_dropout=GOAL_DROPOUT)
AHEAD = TWINS.replace(anticipates=True)
TABLES = ["anticipation", "goal-dropout-fullgoal", "goal-dropout-anticipation"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    data = planning_data()
    files = model_files(data, config=AHEAD)
    return data, files, scorers_of(data, files, tmp_path_factory.mktemp("scorers"), threshold=0.5)


@pytest.fixture(scope="module")
def table(made):
    return predicted(*made)[0]


def windows_of(data: PlanningData, horizon: int = 4) -> Tensor:
    """One test window of each take: no segment is the Goal of one and stands elsewhere in another."""
    windows = data.windows[horizon]
    return probe_rows(windows.take, (windows.split == 2).nonzero()[:, 0])


def answers_of(data: PlanningData, files: ModelFiles) -> dict[str, Answers]:
    """What every row without a goal says of `windows_of`."""
    view = chain_view(data, files, chains_of(data)[0], 0, "cpu")
    twins = goal_dropout_view(view, files, 0, "cpu")
    segments = data.windows[4].segments[windows_of(data)]
    blind = Anticipation(without_goal(twins))
    batch = WindowBatch(view, segments, fallback_plans(view, segments), anticipation=blind)
    return {row.id: row.answer(batch) for row in ROWS}


def without_its_goal(data: PlanningData, how: str) -> PlanningData:
    """The same, where the last step of each of `windows_of` shows NaN, or what a segment of another take shows."""
    goals = data.windows[4].segments[windows_of(data)][:, -1]
    strange = torch.arange(len(goals))
    features, motions, labels = data.features.clone(), data.motions.clone(), data.labels.clone()
    features[goals] = torch.nan if how == "nan" else features[strange]
    motions[goals] = torch.nan if how == "nan" else motions[strange]
    labels[goals] = (labels[goals] + 1) % len(data.bank)
    return replace(data, features=features, motions=motions, labels=labels)


def test_rows_are_there_where_twins_anticipate_and_change_no_other(made, table):
    data, files, scorers = made
    about = {**files.predictors.about, "config": TWINS.model_dump_json()}
    bare = predicted(data, files._replace(predictors=replace(files.predictors, about=about)), scorers)[0]
    rows, of_bare = (set(pc.unique(t["variant"]).to_pylist()) for t in (table, bare))
    assert rows - of_bare == {row.id for row in ROWS}
    own = pa.array([row.id for row in ROWS])
    assert table.filter(pc.invert(pc.is_in(table["variant"], value_set=own))).equals(bare)


@pytest.mark.parametrize("how", ["nan", "another take"])
def test_nothing_of_the_last_step_changes_a_byte_of_them(made, how):
    data, files, _ = made
    whole, blind = answers_of(data, files), answers_of(without_its_goal(data, how), files)
    for row in ROWS:
        assert same(whole[row.id], blind[row.id]), row.id


def seeing(function: Callable) -> Callable:
    """The function on a view that sees the goal: the planted fault."""
    return lambda view, *rest, **named: function(replace(view, sees_goal=True), *rest, **named)


def features_anyway(view: ChainView, segments: Tensor) -> Tensor:
    """The goal's features, whatever the view says."""
    return view.data.features[segments[:, -1]]


@pytest.mark.parametrize(
    ("where", "name", "fault", "rows"),
    [
        (ChainView, "goal_features", features_anyway, {"no_traj", "oracle"}),
        (plans, "own_plan", seeing(plans.own_plan), {"oracle"}),
        (candidates, "fallback_plans", seeing(candidates.fallback_plans), {"no_traj"}),
    ],
)
def test_a_leak_of_the_goal_into_a_plan_is_seen(made, monkeypatch, where, name, fault, rows):
    data, files, _ = made
    monkeypatch.setattr(where, name, fault)
    whole, blind = answers_of(data, files), answers_of(without_its_goal(data, "another take"), files)
    for row in ROWS:
        leaks = row.id.removeprefix("anticipation_").removesuffix("_no_dropout") in rows
        assert same(whole[row.id], blind[row.id]) != leaks, row.id


@pytest.mark.parametrize("row", [NO_TRAJ, ORACLE])
def test_every_evaluation_refuses_a_row_whose_model_is_shown_the_goal(made, monkeypatch, row):
    monkeypatch.setattr(ChainView, "goal_features", features_anyway)
    others = [one for one in METHODS if one not in ROWS]
    monkeypatch.setattr("trajpilot_core.evaluation.predictions.METHODS", [*others, row])
    with pytest.raises(LeakError, match=f"id {row.id}$"):
        list(predict_rows(*made, CONFIG, "test", "cpu", quiet))


@pytest.mark.parametrize(("row", "lie"), [(ORACLE, "start"), (ORACLE, "start_motion")])
def test_a_row_that_hides_what_it_sees_is_refused(made, monkeypatch, row, lie):
    others = [one for one in METHODS if one not in ROWS]
    monkeypatch.setattr("trajpilot_core.evaluation.predictions.METHODS", [*others, replace(row, sees=lie)])
    with pytest.raises(LeakError, match=f"id {row.id}$"):
        list(predict_rows(*made, CONFIG, "test", "cpu", quiet))


def test_a_row_without_a_goal_is_bounded_by_what_has_seen_as_much():
    assert {method(row.id).ceiling for row in ROWS} <= {"no_traj", "oracle"}
    replace(NO_TRAJ, ceiling="endpoint_traj")
    with pytest.raises(MethodError, match="sees motion_to_goal, more than its ceiling endpoint_traj"):
        replace(ORACLE, ceiling="endpoint_traj")
    assert [row.uses_the_truth for row in (NO_TRAJ, ORACLE)] == [False, True]


def test_they_alone_are_scored_on_the_steps_after_start_and_printed_in_tables_of_their_own(table):
    found = predictions_of(table)
    metrics = metric_rows(found, "toy", take_clusters(found), CONFIG)
    extra = set(of_table("anticipation"))
    assert {row.variant for row in metrics if row.metric in extra} == {row.id for row in ROWS}
    assert scored_on("no_traj") & extra == set()
    results = results_of(metrics, [])
    assert [one.id for one in anticipation_tables(results)] == TABLES
    printed = {cell.metric.variant for one in all_tables(results) for cell in one.cells()}
    assert printed & {row.id for row in ROWS} == set()
    planned = results_of([row for row in metrics if not method(row.variant).anticipates], [])
    assert anticipation_tables(planned) == []


def test_at_three_steps_future_recall_is_the_future_sequence(table):
    """The exact check of the paper's column; the other reading counts one step more and is another figure."""
    found = predictions_of(table)
    metrics = metric_rows(found, "toy", take_clusters(found), CONFIG)
    value = {(m.variant, m.metric): m.value for m in metrics if m.horizon == 3 and m.reference is None and m.seed == 0}
    for row in ROWS:
        assert value[row.id, "M@1"] == value[row.id, "MSeq"]
    assert any(value[row.id, "A@1"] != value[row.id, "ASeq"] for row in ROWS)


def test_anticipation_needs_twins_and_an_open_head():
    for wrong in ({}, {"twin_goal_dropout": 0.5, "head": "classes"}):
        with pytest.raises(ValueError, match="set twin_goal_dropout and head=open"):
            PredictorConfig(anticipates=True, **wrong)


def test_settings_of_anticipation_at_their_defaults_leave_every_digest_as_it_was():
    """The planted fault: a setting that differs is in the content."""
    assert not {"anticipates", "masked_goal_target"} & PREDICTOR.content().keys()
    assert {"anticipates", "masked_goal_target"} <= AHEAD.replace(masked_goal_target="kept").content().keys()
    assert PredictorConfig.model_validate_json(AHEAD.model_dump_json()) == AHEAD
