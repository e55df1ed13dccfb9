"""The leak checks of a run: splits, copies, fits, statistics, choices, budget, knobs; each with a planted fault."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from leaks_fixture import CHECKS, WORLD, all_checks, copy_of, material_of, provenance, trained, world
from planning_world import Memory
from torch import Tensor

from schemas.results import LeakCheck
from schemas.training import PredictorConfig, ScorerConfig, TrainConfig
from trajpilot_core.data.chains import chains_of, open_model_files
from trajpilot_core.data.cross_fitting import FITTED, Chain, note_fitted, noted_fitted
from trajpilot_core.data.planning import PlanningData, load_planning_data
from trajpilot_core.models.alignment import channel_scale
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.retrieval import bank
from trajpilot_core.retrieval.bank import chain_view
from trajpilot_core.studies.claims.leaks import choices as leaks_choices
from trajpilot_core.studies.claims.leaks import scorers as leaks_scorers
from trajpilot_core.studies.claims.leaks import tables as leaks_tables
from trajpilot_core.studies.claims.leaks import world as leaks_world
from trajpilot_core.studies.claims.leaks.checks import leak_checks
from trajpilot_core.training import scorer_plus_statistics
from trajpilot_core.training.scorer import NEVER
from trajpilot_core.training.scorer_fit import ScorerDecision
from trajpilot_core.training.scorer_plus_fit import PlusDecision

SPLITS_RULE = "no take or capture is in two splits"
RELEASED_RULE = "no take that the world released for testing is used for training or dev"
COPY_RULE = "no segment of one take is a copy of another take's"
WINDOW_RULE = "no window leaves its take"
FIT_RULE = "models are fitted on training takes outside their fold only"
CANDIDATE_RULE = "only test takes are scored, with candidates from fitted training takes"
FEATURE_RULE = "features are normalised by fitted takes alone"
MOTION_RULE = "head motion is scaled by fitted takes alone"
ENCODER_EPOCH = "the stored motion encoders are those of their best dev epoch"
PREDICTOR_EPOCH = "the stored predictors are those of their best dev epoch"
TEMPERATURES = "temperatures of kNN-labels and Pool-Mean are the best on dev"
THRESHOLDS = "gate thresholds are the best on dev"
DEV_GATES = "gate thresholds are gate values of dev windows"
QUERIES = "scorers learn from held-out training windows and choose on dev windows only"
FOREIGN = "bank and Scorer+ hold nothing of dev and test takes"
BUDGET = "every row is trained with the same budget"
KNOBS = "the knobs of the world are those of the dated configuration"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return trained(tmp_path_factory.mktemp("scratch"))


@pytest.fixture
def planted(run: Memory) -> Memory:
    return copy_of(run)


def failed(checks: list[LeakCheck]) -> set[str]:
    return {check.check.removeprefix("leak: ") for check in checks if check.verdict == "fails"}


def faults_of_tables(memory: Memory) -> set[str]:
    return failed(leaks_tables.table_checks(material_of(memory)))


def faults_of_choices(memory: Memory) -> set[str]:
    material = material_of(memory)
    return failed([*leaks_choices.choice_checks(material), *leaks_scorers.scorer_checks(material)])


def edit(memory: Memory, name: str, change: Callable[[dict[str, object]], dict[str, object]]) -> None:
    """Change rows of a table in place of the old ones."""
    table = memory.tables[name]
    memory.tables[name] = pa.Table.from_pylist([change(row) for row in table.to_pylist()], schema=table.schema)


def take_ids(memory: Memory, split: str) -> list[str]:
    return [row["take_id"] for row in memory.table("takes").to_pylist() if row["split"] == split]


def test_a_clean_run_passes_every_check(run: Memory) -> None:
    checks = all_checks(run)
    assert {check.verdict for check in checks.values()} == {"holds"}
    assert len(checks) == 30
    assert all(check.bound is not None and check.detail for check in checks.values())


def test_a_run_of_predictors_alone_says_what_it_could_not_check(run: Memory) -> None:
    few = copy_of(run)
    absent = ("scorers", "scorer_curves", "predictions")
    del few.entries["scorers"], few.tables["scorer_curves"], few.tables["predictions"]
    checks = leak_checks(few, world(), provenance(), CHECKS, absent)
    silent = {check.check.removeprefix("leak: ") for check in checks if check.verdict == "not run"}
    assert silent == {CANDIDATE_RULE, TEMPERATURES, THRESHOLDS, DEV_GATES, QUERIES, FOREIGN}
    assert failed(checks) == set()


def test_an_encoder_that_knows_the_labels_is_found(run: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    material = material_of(run)
    rows = material.steps.row[material.steps.split == leaks_world.DEV]
    told = material.data.bank[material.data.labels[rows]]
    assert failed(leaks_world.motion_checks(material)) == set()
    monkeypatch.setattr(leaks_world, "trajectory_latents", lambda *_: told)
    assert failed(leaks_world.motion_checks(material)) == {
        "head motion: the trained encoder names no more labels than the latents can",
        "head motion does not name the label",
    }


def test_a_test_take_among_the_training_takes_is_found(planted: Memory) -> None:
    stolen = take_ids(planted, "test")[0]
    for name in ("takes", "segments", "windows"):
        edit(planted, name, lambda row: row | {"split": "train"} if row["take_id"] == stolen else row)
    assert faults_of_tables(planted) >= {RELEASED_RULE, SPLITS_RULE}


def test_a_take_of_another_world_is_found(planted: Memory) -> None:
    foreign = material_of(planted, replace(world(), takes=world().takes[1:]))
    assert failed(leaks_tables.table_checks(foreign)) == {RELEASED_RULE}


def test_segments_or_windows_in_another_split_than_their_take_are_found(planted: Memory) -> None:
    stolen = take_ids(planted, "test")[0]
    edit(planted, "windows", lambda row: row | {"split": "train"} if row["take_id"] == stolen else row)
    assert SPLITS_RULE in faults_of_tables(planted)


def test_a_capture_shared_by_training_and_test_is_found(planted: Memory) -> None:
    captures = {row["split"]: row["capture"] for row in planted.table("takes").to_pylist()}
    stolen = take_ids(planted, "test")[0]
    edit(planted, "takes", lambda row: row | {"capture": captures["train"]} if row["take_id"] == stolen else row)
    assert faults_of_tables(planted) == {SPLITS_RULE}


@pytest.mark.parametrize(("name", "column"), [("motions", "motions"), ("features", "vector")])
def test_a_test_take_that_was_copied_into_the_training_takes_is_found(planted: Memory, name: str, column: str) -> None:
    rows = planted.table(name).to_pylist()
    source = next(row for row in rows if row["take_id"] == take_ids(planted, "test")[0])
    target = next(row for row in rows if row["take_id"] == take_ids(planted, "train")[0])
    edit(
        planted,
        name,
        lambda row: row | {column: source[column]} if row["segment_id"] == target["segment_id"] else row,
    )
    assert COPY_RULE in faults_of_tables(planted)


def test_a_window_with_a_segment_of_another_take_is_found(planted: Memory) -> None:
    windows = planted.table("windows").to_pylist()
    first, last = windows[0], next(row for row in windows if row["take_id"] != windows[0]["take_id"])
    mixed = first["segment_ids"][:-1] + last["segment_ids"][-1:]
    edit(planted, "windows", lambda row: row | {"segment_ids": mixed} if row == first else row)
    assert faults_of_tables(planted) == {WINDOW_RULE}


@pytest.mark.parametrize("entry", ["e_tau", "predictors"])
@pytest.mark.parametrize("whom", ["dev", "test", "own fold"])
def test_a_fit_on_a_take_that_it_may_not_see_is_found(planted: Memory, entry: str, whom: str) -> None:
    folds = {row["take_id"]: row["fold"] for row in planted.table("folds").to_pylist()}
    take = next(t for t, f in folds.items() if f == 1) if whom == "own fold" else take_ids(planted, whom)[0]
    chain = "fold1" if whom == "own fold" else "final"
    about = planted.entries[entry].about
    about |= note_fitted(chain, [*noted_fitted(about)[chain], take])
    assert faults_of_tables(planted) == {FIT_RULE}


def test_fits_without_a_record_are_not_called_clean(planted: Memory) -> None:
    about = planted.entries["predictors"].about
    for chain in noted_fitted(about):
        del about[f"{FITTED}{chain}"]
    checks = {c.check.removeprefix("leak: "): c for c in leaks_tables.table_checks(material_of(planted))}
    assert checks[FIT_RULE].verdict == "not run"


def retrieved(memory: Memory, split: str, own: bool) -> None:
    """Let one window of the row `scorer` name a window of another split, or one of its own take, as its candidate."""
    predictions = memory.table("predictions")
    one = next(row for row in predictions.to_pylist() if row["variant"] == "scorer")
    windows = memory.table("windows").to_pylist()
    other = next(w for w in windows if w["split"] == split and (w["take_id"] == one["take_id"]) == own)
    hit = pc.and_(pc.equal(predictions["window_id"], one["window_id"]), pc.equal(predictions["variant"], "scorer"))
    changed = pc.if_else(hit, other["window_id"], predictions["candidate"])
    at = predictions.schema.get_field_index("candidate")
    memory.tables["predictions"] = predictions.set_column(at, predictions.schema.field("candidate"), changed)


@pytest.mark.parametrize(("split", "own"), [("dev", False), ("test", False), ("test", True)])
def test_a_candidate_from_a_take_that_was_not_fitted_is_found(planted: Memory, split: str, own: bool) -> None:
    retrieved(planted, split, own)
    assert faults_of_tables(planted) == {CANDIDATE_RULE}


def test_a_scored_training_take_is_found(planted: Memory) -> None:
    stolen, instead = take_ids(planted, "test")[0], take_ids(planted, "train")[0]
    edit(planted, "predictions", lambda row: row | {"take_id": instead} if row["take_id"] == stolen else row)
    assert faults_of_tables(planted) == {CANDIDATE_RULE}


def test_features_normalised_over_all_takes_are_found(planted: Memory) -> None:
    data = load_planning_data(planted, "test")
    mean, scale = (value.numpy() for value in feature_scales(data.features))
    weights = planted.entries["predictors"].weights
    weights["final/s0/traj"]["feature_mean"] = mean
    assert faults_of_tables(planted) == {FEATURE_RULE}
    weights["final/s0/traj"]["feature_mean"] = weights["final/s0/no_traj"]["feature_mean"]
    weights["fold1/s0/traj"]["feature_scale"] = scale
    assert faults_of_tables(planted) == {FEATURE_RULE}


def test_head_motion_scaled_over_all_takes_is_found(planted: Memory) -> None:
    data = load_planning_data(planted, "test")
    planted.entries["e_tau"].weights["final/s0/e_tau"]["scale"] = channel_scale(data.motions).numpy()
    assert faults_of_tables(planted) == {MOTION_RULE}


def test_statistics_that_tell_nobody_apart_are_not_called_clean(run: Memory) -> None:
    material = material_of(run)
    flat = replace(material, data=replace(material.data, features=material.data.features * 0 + 1))
    assert leaks_tables.statistics_check(flat, FEATURE_RULE, leaks_tables.feature_statistics(flat)).verdict == "not run"


def test_weights_of_another_epoch_than_the_best_are_found(planted: Memory) -> None:
    rng = np.random.default_rng(0)
    for entry, part in (("e_tau", "fold0/s0/e_tau"), ("predictors", "final/s0/endpoint_traj")):
        tensors = planted.entries[entry].weights[part]
        for name, value in tensors.items():
            if value.ndim == 2:
                tensors[name] = value + rng.normal(size=value.shape).astype(value.dtype)
    assert {ENCODER_EPOCH, PREDICTOR_EPOCH} <= faults_of_choices(planted)


@pytest.mark.parametrize("model", ["final/e_tau", "fold1/e_tau"])
def test_a_model_without_a_curve_does_not_pass(planted: Memory, model: str) -> None:
    edit(planted, "alignment_curves", lambda row: row | {"model": "other"} if row["model"] == model else row)
    assert faults_of_choices(planted) == {ENCODER_EPOCH}


def decide(memory: Memory, row: str = "scorer", **changes: object) -> None:
    """Change what the scorers' entry says was decided."""
    memory.entries["scorers"].about[f"final/s0/{row}"] = decision(memory, row).replace(**changes).model_dump_json()


def decision(memory: Memory, row: str = "scorer") -> ScorerDecision | PlusDecision:
    kind = PlusDecision if row == "scorer_plus" else ScorerDecision
    return kind.model_validate_json(memory.entries["scorers"].about[f"final/s0/{row}"])


@pytest.mark.parametrize("row", ["scorer", "scorer_no_motion", "scorer_plus"])
def test_a_gate_threshold_that_is_no_dev_gate_is_found(planted: Memory, row: str) -> None:
    decide(planted, row, threshold=decision(planted, row).threshold + 3e-5)
    assert faults_of_choices(planted) >= {DEV_GATES}


def test_weights_of_scorer_plus_that_dev_did_not_choose_are_found(planted: Memory) -> None:
    tensors = planted.entries["scorers"].weights["final/s0/scorer_plus"]
    for name in tensors:
        tensors[name] = tensors[name] - 2.0
    assert THRESHOLDS in faults_of_choices(planted)


def test_foreign_takes_in_scorer_plus_or_the_bank_are_found(run: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    material = material_of(run)
    files, config = open_model_files(run), ScorerConfig(candidates=6, prefetch=9)
    view = chain_view(material.data, files, chains_of(material.data)[0], 0, "cpu")
    assert leaks_scorers.foreign_parts(view, config) == []

    def everybody(data: PlanningData, chain: Chain) -> Tensor:
        return torch.arange(len(data.take_ids))

    def dev(data: PlanningData, chain: Chain) -> Tensor:
        return (data.take_split == 1).nonzero()[:, 0]

    with monkeypatch.context() as patched:
        patched.setattr(scorer_plus_statistics, "fit_takes", dev)
        found = leaks_scorers.foreign_parts(view, config)
    assert {part.split(" of ")[0] for part in found} >= {"statistics", "motion", "recognition"}
    monkeypatch.setattr(bank, "fit_takes", everybody)
    monkeypatch.setattr(bank, "check_bank", lambda *_: None)
    assert "key of the bank, H=3" in leaks_scorers.foreign_parts(view, config)


def test_a_gate_threshold_that_is_worse_on_dev_is_found(planted: Memory) -> None:
    stored = decision(planted)
    assert stored.threshold != NEVER
    assert stored.dev["M@1"] > stored.dev["fallback M@1"]
    decide(planted, threshold=NEVER)
    assert faults_of_choices(planted) == {THRESHOLDS}


def test_a_temperature_that_is_worse_on_dev_is_found(planted: Memory) -> None:
    stored = decision(planted)
    for name in ("knn_temperature", "pool_temperature"):
        decide(planted, **{name: 1.0 if getattr(stored, name) < 0.3 else 0.01})
    assert faults_of_choices(planted) == {TEMPERATURES}


def test_queries_from_takes_that_are_not_held_out_are_found(planted: Memory) -> None:
    decide(planted, "scorer_plus", n_queries=decision(planted).n_queries + 40)
    assert faults_of_choices(planted) == {QUERIES}
    decide(planted, "scorer_plus", n_queries=decision(planted).n_queries)
    decide(planted, n_queries=decision(planted).n_queries - 40, n_dev=decision(planted).n_dev + 40)
    assert faults_of_choices(planted) == {QUERIES}


@pytest.mark.parametrize("model", ["final/no_traj", "fold0/traj"])
def test_a_row_that_was_stopped_before_the_others_is_found(planted: Memory, model: str) -> None:
    kept = [r for r in planted.table("predictor_curves").to_pylist() if r["model"] != model or r["epoch"] < 3]
    planted.tables["predictor_curves"] = pa.Table.from_pylist(kept, schema=planted.table("predictor_curves").schema)
    assert BUDGET in faults_of_choices(planted)


@pytest.mark.parametrize("model", ["final/scorer_no_labels", "final/scorer_plus"])
def test_a_row_that_was_never_trained_is_found(planted: Memory, model: str) -> None:
    kept = [r for r in planted.table("scorer_curves").to_pylist() if r["model"] != model]
    planted.tables["scorer_curves"] = pa.Table.from_pylist(kept, schema=planted.table("scorer_curves").schema)
    assert faults_of_choices(planted) == {BUDGET}


def test_a_smaller_model_in_one_row_is_found(run: Memory) -> None:
    planted = copy_of(run)
    assert leaks_choices.size_faults(planted.models("predictors"), (0,)) == []
    tensors = planted.entries["predictors"].weights["final/s0/no_traj"]
    tensors |= {name: value[:1] for name, value in tensors.items() if value.ndim == 2}
    found = ["final/s0/no_traj has other tensors than the others"]
    assert leaks_choices.size_faults(planted.models("predictors"), (0,)) == found
    del planted.entries["predictors"].weights["final/s0/no_traj"]
    assert leaks_choices.size_faults(planted.models("predictors"), (0,)) == found


def test_goal_dropout_twins_that_a_run_asks_for_are_looked_for(planted: Memory) -> None:
    about = planted.entries["predictors"].about
    cfg = PredictorConfig.model_validate_json(about["config"]).replace(twin_goal_dropout=0.5)
    about["config"] = cfg.model_dump_json()
    twins = [f"final/s0/{variant}_goal_dropout" for variant in ("traj", "no_traj")]
    found = leaks_choices.size_faults(planted.models("predictors"), (0,))
    assert found == [f"{key} has other tensors than the others" for key in twins]
    assert leaks_choices.budget_check(material_of(planted)).verdict == "fails"


def test_a_training_ends_at_its_last_epoch_or_after_its_patience() -> None:
    train = TrainConfig(epochs=6, patience=2)
    assert leaks_choices.stop_faults("m", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], train) == []
    assert leaks_choices.stop_faults("m", [0.1, 0.3, 0.2, 0.2], train) == []
    assert leaks_choices.stop_faults("m", [0.1, 0.3, 0.2], train)
    assert leaks_choices.stop_faults("m", [0.3, 0.1, 0.2, 0.1], train)
    assert leaks_choices.stop_faults("m", [0.1] * 7, train)
    assert leaks_choices.stop_faults("m", [], train)


def test_knobs_that_differ_from_the_dated_ones_or_were_fixed_later_are_found(run: Memory) -> None:
    material = material_of(run)

    def verdict(**changes: object) -> str:
        return leaks_choices.knobs_check(replace(material, provenance=provenance(**changes))).verdict

    assert verdict() == "holds"
    assert verdict(dated=WORLD.replace(kappa=2.5)) == "fails"
    assert verdict(stored=WORLD.replace(kappa=2.5)) == "fails"
    assert verdict(fixed_on="2026-11-23") == "fails"
    assert verdict(computed_on="2026-11-20") == "fails"
    assert verdict(computed_on=None) == "not run"
    assert verdict(computed_on=None, dated=WORLD.replace(rho=0.5)) == "fails"
    assert leaks_choices.knobs_check(replace(material, provenance=provenance())).check == f"leak: {KNOBS}"
