"""Rows without a goal: present where twins anticipate, next to the others, and independent of the last step."""

from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from planning_fixture import PREDICTOR, model_files, on_cpu, planning_data
from planning_fixture import SCORER as WHOLE_SCORER
from planning_world import Memory
from right_predictions import predictions_of
from rows_fixture import CONFIG, predicted, quiet, with_threshold
from torch import Tensor
from torch.nn import functional as F

from schemas.training import GOAL_DROPOUT, PredictorConfig
from trajpilot_core.data.chains import ModelFiles, chains_of, load_predictor
from trajpilot_core.data.cross_fitting import SCORER_NO_GOAL
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.errors import LeakError, MethodError
from trajpilot_core.evaluation.checks import gate_check
from trajpilot_core.evaluation.predictions import predict_rows
from trajpilot_core.evaluation.tables import metric_rows, scored_on
from trajpilot_core.methods import METHODS, anticipation, method, plans
from trajpilot_core.methods.anticipation import NO_TRAJ, ORACLE, ROWS
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.batch import Anticipation, WindowBatch, at_horizon, retrieved_by_start
from trajpilot_core.methods.sight import probe_rows, same
from trajpilot_core.metrics import of_table
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.report.tables.results import all_tables, anticipation_tables, results_of
from trajpilot_core.report.tables.table import Value
from trajpilot_core.retrieval import bank, candidates
from trajpilot_core.retrieval.bank import ChainView, chain_view, goal_dropout_view, without_goal
from trajpilot_core.retrieval.candidates import fallback_plans
from trajpilot_core.simworld.inference.visible import KINDS_WITHOUT_GOAL
from trajpilot_core.store.tensors import Models
from trajpilot_core.training import scorer as scorer_inputs
from trajpilot_core.training.fit_predictor import (
    PredictorTask,
    is_measured_with_goal,
    measurer,
    predictor_task,
)
from trajpilot_core.training.scorer import decide
from trajpilot_core.training.scorer_fit import (
    FittedScorer,
    ReadyScorer,
    fit_scorers,
    load_scorer_without_goal,
    write_scorers,
)

SCORER = WHOLE_SCORER.replace(ablations=())
TWINS = PREDICTOR.replace(twin_goal_dropout=GOAL_DROPOUT)
AHEAD = TWINS.replace(anticipates=True)
PLANNED = {"no_traj", "oracle", "endpoint_traj"}
QUERY_VECTORS = scorer_inputs._query_vectors


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Data, models, and scorers, the one without a goal among them."""
    data, folder = planning_data(), tmp_path_factory.mktemp("scorers")
    files, memory = model_files(data, config=AHEAD), Memory()
    with memory.training("final/s0") as share:
        write_scorers(share, 0, with_threshold(fit_scorers(data, files, SCORER, 0, on_cpu(folder / "goal")), 0.5))
    (blind,) = fit_scorers(data, files, SCORER, 0, on_cpu(folder / "none"), sees_goal=False).values()
    with memory.training("final/s0/no_goal") as share:
        half_open = blind.decision.replace(threshold=threshold_between(blind, data, files))
        write_scorers(share, 0, {SCORER_NO_GOAL: blind._replace(decision=half_open)})
    memory.models("scorers", {"config": SCORER.replace(anticipates=True).model_dump_json()})
    return data, files, memory.models("scorers")


def threshold_between(blind: FittedScorer, data: PlanningData, files: ModelFiles) -> float:
    """A threshold at which some gates open and others stay closed."""
    scorer = GateThenRankScorer(SCORER, blind.shape)
    scorer.load_state_dict(blind.state)
    ready = ReadyScorer(scorer.eval(), blind.decision)
    return float(decide(scorer, batch_of_all(data, files, ready).anticipation.queries, 64)[0].median())


def batch_of_all(data: PlanningData, files: ModelFiles, scorer: ReadyScorer | None, rows: Tensor | None = None):
    """Windows of four steps, by default of test, with all that rows without a goal answer with."""
    view = chain_view(data, files, chains_of(data)[0], 0, "cpu")
    rows = (data.windows[4].split == 2).nonzero()[:, 0] if rows is None else rows
    segments = data.windows[4].segments[rows]
    models = Anticipation(without_goal(goal_dropout_view(view, files, 0, "cpu")), SCORER, scorer)
    found = retrieved_by_start(at_horizon(models, 4), rows)
    return WindowBatch(view, segments, anticipation=found)


@pytest.fixture(scope="module")
def table(made):
    return predicted(*made)[0]


def windows_of(data: PlanningData, horizon: int = 4) -> Tensor:
    """One test window of each take: no segment is the Goal of one and another step of another."""
    windows = data.windows[horizon]
    return probe_rows(windows.take, (windows.split == 2).nonzero()[:, 0])


def answers_of(data: PlanningData, files: ModelFiles, scorers: Models) -> dict[str, Answers]:
    """Answers of every row without a goal for `windows_of`."""
    batch = batch_of_all(data, files, load_scorer_without_goal(scorers, 0, "cpu"), windows_of(data))
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


def test_the_gate_falls_back_on_the_row_without_a_goal_and_opens_by_a_threshold_of_its_own(made, table):
    found = predictions_of(table)
    check = gate_check(found)
    assert check.verdict == "holds"
    assert anticipation.SCORER.name in check.detail
    opened = {bool(o) for b in found.of(anticipation.SCORER.id) for o in (b.opened == 1).tolist()}
    assert opened == {True, False}
    loud = replace(anticipation.SCORER, gate=method("scorer").gate)  # planted: the goal-seeing fallback
    listed = [loud if one is anticipation.SCORER else one for one in METHODS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trajpilot_core.evaluation.checks.METHODS", listed)
        assert gate_check(found).verdict == "fails"


def test_the_key_of_a_window_is_its_start_alone(made):
    data, files, _ = made
    batch = batch_of_all(data, files, None)
    assert batch.anticipation.found is None
    assert anticipation.SCORER.answer(batch) is None
    view, segments = batch.anticipation.view, batch.segments
    width = view.latents.shape[1]
    for key, wide in (("action", width), ("visual", data.features.shape[2])):
        keys = bank.endpoint_keys(view, segments, key)
        assert keys.shape == (len(segments), wide)
        assert torch.equal(keys, bank.endpoint_keys(view, segments.roll(1, 0)[:, :1].expand(-1, 4).roll(-1, 0), key))
    start = view.models.no_traj(data.features[segments[:, 0]], None, torch.zeros(len(segments), 4, width), 4)[:, 0]
    assert torch.allclose(bank.endpoint_keys(view, segments, "action"), F.normalize(start, dim=-1))


def test_rows_are_present_where_twins_anticipate_and_change_no_other(made, table):
    data, files, scorers = made
    about = {**files.predictors.about, "config": TWINS.model_dump_json()}
    bare = predicted(data, files._replace(predictors=replace(files.predictors, about=about)), scorers)[0]
    rows, of_bare = (set(pc.unique(t["variant"]).to_pylist()) for t in (table, bare))
    assert rows - of_bare == {row.id for row in ROWS}
    own = pa.array([row.id for row in ROWS])
    assert table.filter(pc.invert(pc.is_in(table["variant"], value_set=own))).equals(bare)


def test_the_last_step_changes_no_byte_of_them(made):
    data, files, scorers = made
    whole = answers_of(data, files, scorers)
    for how in ("nan", "another take"):
        blind = answers_of(without_its_goal(data, how), files, scorers)
        assert [row.id for row in ROWS if not same(whole[row.id], blind[row.id])] == [], how


def seeing(function: Callable) -> Callable:
    """The function on a view that sees the goal: the planted fault."""

    def seen(*given, **named):
        return function(
            *(replace(one, sees_goal=True) if isinstance(one, ChainView) else one for one in given), **named
        )

    return seen


def features_anyway(view: ChainView, segments: Tensor) -> Tensor:
    """The goal's features, whatever the view says."""
    return view.data.features[segments[:, -1]]


def goal_in_the_key(view: ChainView, segments: Tensor, key: str, plan: Tensor | None = None) -> Tensor:
    """The key of a Start, shifted by the features of the goal."""
    own = bank.endpoint_keys(view, segments, key, plan)
    return F.normalize(own + view.data.features[segments[:, -1]].float().mean((1, 2))[:, None].sin(), dim=-1)


def goal_in_the_query(view: ChainView, segments: Tensor) -> Tensor:
    """Query of the scorer for a window, shifted by the goal's motion."""
    own = QUERY_VECTORS(view, segments)
    return torch.cat([own[:, :1] + 9 * view.latents[segments[:, -1], :1], own[:, 1:]], dim=1)


def goal_in_the_ends(data: PlanningData, files: ModelFiles) -> Callable:
    """`with_ends` with a Goal that the originals predict where they see it."""
    view = chain_view(data, files, chains_of(data)[0], 0, "cpu")

    def with_seen_goal(found: candidates.Candidates, plan: Tensor) -> Tensor:
        goal = fallback_plans(view, found.segments)[:, -1:]
        return torch.cat([found.ends[:, :1], plan, goal], dim=1)

    return with_seen_goal


def test_a_leak_of_the_goal_into_an_answer_is_seen(made, subtests):
    for where, name, fault, rows in (
        (ChainView, "goal_features", features_anyway, PLANNED | {"scorer"}),
        (plans, "own_plan", seeing(plans.own_plan), {"oracle", "endpoint_traj"}),
        (candidates, "fallback_plans", seeing(candidates.fallback_plans), {"no_traj"}),
        (candidates, "no_traj_plans", seeing(candidates.no_traj_plans), {"no_traj", "scorer"}),
        (candidates, "roll_out", seeing(candidates.roll_out), {"scorer"}),
        (candidates, "endpoint_keys", goal_in_the_key, {"scorer"}),
        (scorer_inputs, "_query_vectors", goal_in_the_query, {"scorer"}),
        (plans, "with_ends", None, {"scorer"}),
    ):
        with subtests.test(f"{where}, {name}, {fault}, {rows}"), pytest.MonkeyPatch.context() as monkeypatch:
            data, files, scorers = made
            strange = without_its_goal(data, "another take")
            faults = [fault or goal_in_the_ends(one, files) for one in (data, strange)]
            answered = []
            for one, planted in zip((data, strange), faults, strict=True):
                monkeypatch.setattr(where, name, planted)
                answered.append(answers_of(one, files, scorers))
            whole, blind = answered
            changed = {row.id for row in ROWS if not same(whole[row.id], blind[row.id])}
            assert {id_.removeprefix("anticipation_").removesuffix("_no_dropout") for id_ in changed} == rows


def test_every_evaluation_refuses_a_row_that_sees_the_goal_or_more_than_it_declares(made, subtests):
    lies = [(ORACLE, "start"), (ORACLE, "start_motion"), (anticipation.SCORER, "start")]
    shown = [(row, row.sees) for row in (NO_TRAJ, ORACLE, anticipation.SCORER)]
    others = [one for one in METHODS if one not in ROWS]
    for row, sees in (*lies, *shown):
        with subtests.test(f"{row.id}, {sees}"), pytest.MonkeyPatch.context() as monkeypatch:
            if sees == row.sees:
                monkeypatch.setattr(ChainView, "goal_features", features_anyway)
            monkeypatch.setattr("trajpilot_core.evaluation.predictions.METHODS", [*others, replace(row, sees=sees)])
            with pytest.raises(LeakError, match=f"id {row.id}$"):
                list(predict_rows(*made, CONFIG, "test", "cpu", quiet))


def test_a_row_without_a_goal_is_bounded_by_a_ceiling_that_sees_as_much():
    assert {method(row.id).ceiling for row in ROWS} == set(KINDS_WITHOUT_GOAL)
    replace(NO_TRAJ, ceiling="endpoint_traj")
    with pytest.raises(MethodError, match="sees motion_to_goal, more than its ceiling endpoint_traj"):
        replace(ORACLE, ceiling="endpoint_traj")
    assert [row.uses_the_truth for row in (NO_TRAJ, ORACLE)] == [False, True]


@pytest.fixture(scope="module")
def metrics(table):
    found = predictions_of(table)
    return metric_rows(found, "toy", CONFIG)


def test_they_alone_are_scored_on_the_steps_after_start_and_printed_in_tables_of_their_own(metrics):
    extra = set(of_table("anticipation"))
    assert {row.variant for row in metrics if row.metric in extra} == {row.id for row in ROWS}
    assert scored_on("no_traj") & extra == set()
    results = results_of(metrics, [])
    assert [one.id for one in anticipation_tables(results)] == ["anticipation"]
    cells = (cell for table in all_tables(results) for row in table.rows for cell in row)
    printed = {cell.metric.variant for cell in cells if isinstance(cell, Value)}
    assert printed & {row.id for row in ROWS} == set()
    planned = results_of([row for row in metrics if not method(row.variant).anticipates], [])
    assert anticipation_tables(planned) == []


def test_at_three_steps_future_recall_is_the_future_sequence(metrics):
    """The exact check of the paper's column; the other reading counts one step more and is another figure."""
    value = {(m.variant, m.metric): m.value for m in metrics if m.horizon == 3 and m.reference is None and m.seed == 0}
    for row in ROWS:
        assert value[row.id, "M@1"] == value[row.id, "MSeq"]
    assert any(value[row.id, "A@1"] != value[row.id, "ASeq"] for row in ROWS)


def test_anticipation_needs_twins_and_an_open_head():
    for wrong in ({}, {"twin_goal_dropout": 0.5, "head": "classes"}):
        with pytest.raises(ValueError, match="set twin_goal_dropout and head=open"):
            PredictorConfig(anticipates=True, **wrong)


@pytest.mark.parametrize("variant", ["traj_goal_dropout", "no_traj_goal_dropout"])
def test_epochs_of_twins_that_anticipate_are_selected_without_the_goal(made, variant):
    """The planted fault is the rule of all other predictors: dev shows them the goal."""
    data, files, _ = made
    task = predictor_task(data, files.e_tau, chains_of(data)[0], 0, "cpu", PredictorConfig())
    windows = data.windows[4]
    rows = probe_rows(windows.take, (windows.split == 1).nonzero()[:, 0])
    goals, features, latents = windows.segments[rows][:, -1], task.features.clone(), task.latents.clone()
    features[goals], latents[goals] = task.features[:1], task.latents[:1]
    shown = replace(task, dev={4: windows.segments[rows]})
    strange = replace(shown, features=features, latents=latents)
    model = load_predictor(files.predictors, chains_of(data)[0], 0, variant, "cpu")

    def answers(config: PredictorConfig, one: PredictorTask) -> list[Tensor]:
        """Outputs of the model that the measure reads."""
        asked: list[Tensor] = []
        hook = model.register_forward_hook(lambda _, __, out: asked.append(out.clone()))
        with torch.no_grad():
            measurer(model, one, variant, sees_goal=is_measured_with_goal(config, variant))()
        hook.remove()
        return asked

    assert torch.equal(answers(AHEAD, shown)[0], answers(AHEAD, strange)[0])
    assert not torch.equal(answers(TWINS, shown)[0], answers(TWINS, strange)[0])
    assert is_measured_with_goal(AHEAD, variant.removesuffix("_goal_dropout"))
