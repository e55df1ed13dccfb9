"""Trainings as shards: which are made again after which change, what a killed one leaves, and who may compute them."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from other_run import model_digests, trained_root, whole
from planning_world import Memory
from stored_world import SETTINGS, TRAIN, TRAININGS, counts, options, run_world, stages_on

from schemas.config import PipelineConfig
from trajpilot_core.data.cross_fitting import Contributions
from trajpilot_core.engine.execution.execute import ComputeContext, execute
from trajpilot_core.engine.execution.groups import compute_group, gather, handed, share_out
from trajpilot_core.engine.execution.reuse import leased
from trajpilot_core.engine.key import KeyedStage
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.sink import Sink, joined
from trajpilot_core.engine.stage import Source
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.manifest import current_manifest

N_E_TAU, N_PREDICTORS, N_SCORERS = 3, 7, 1
"""Chains final, fold0, fold1; the final one has three predictors."""
ALL = {"alignment": (0, N_E_TAU), "predictor": (0, N_PREDICTORS), "scorer": (0, N_SCORERS)}
NONE = {name: (computed, 0) for name, (_, computed) in ALL.items()}


@pytest.fixture(scope="module")
def memory() -> Memory:
    return whole()


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_root(tmp_path_factory)


@pytest.fixture
def root(base: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base, tmp_path / "root"))


def with_seeds(*seeds: int) -> PipelineConfig:
    return SETTINGS.replace(alignment=SETTINGS.alignment.replace(seeds=seeds))


def all_models(root: Path) -> dict[str, str]:
    entries = zip(TRAININGS, ("e_tau", "predictors", "scorers"), strict=True)
    return {key: digest for entry in entries for key, digest in model_digests(root, *entry).items()}


def changed(memory: Memory, name: str, take: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Memory:
    table = memory.tables[name]
    rows = [change(row) if row["take_id"] == take else row for row in table.to_pylist()]
    return Memory({**memory.tables, name: pa.Table.from_pylist(rows, schema=table.schema)})


def brighter(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"vector": np.asarray(row["vector"], np.float16) + np.float16(0.5)}


def faster(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"motions": np.asarray(row["motions"], np.float32) * 1.5}


def takes(memory: Memory, split: str) -> list[str]:
    return [row["take_id"] for row in memory.tables["takes"].to_pylist() if row["split"] == split]


def test_seeds_that_are_appended_train_only_their_own_models_and_their_order_nothing(
    root: Path, memory: Memory
) -> None:
    before = all_models(root)
    assert counts(run_world(root, memory, with_seeds(0, 5))) == {
        "alignment": (N_E_TAU, N_E_TAU),
        "predictor": (N_PREDICTORS, N_PREDICTORS),
        "scorer": (1, 1),
    }
    after = all_models(root)
    assert before.items() < after.items()
    assert len(after) == 2 * len(before)
    folds = current_manifest(LocalFolder(str(root)), "alignment").entries["folds"].fingerprint
    done = run_world(root, memory, with_seeds(5, 0))
    assert counts(done) == {**NONE, "alignment": (6, 0), "predictor": (14, 0), "scorer": (2, 0)}
    assert all_models(root) == after
    assert current_manifest(LocalFolder(str(root)), "alignment").entries["folds"].fingerprint == folds
    done = run_world(root, memory, with_seeds(5))
    assert counts(done) == NONE
    assert [done[name].removed for name in NONE] == [N_E_TAU, N_PREDICTORS, N_SCORERS]


def test_one_changed_take_retrains_what_is_fitted_or_chosen_on_it(root: Path, memory: Memory) -> None:
    done = run_world(root, changed(memory, "features", takes(memory, "train")[0], brighter))
    assert (done["features"].reused, done["features"].computed) == (11, 1)
    assert counts(done) == {
        "alignment": (N_E_TAU, 0),
        "predictor": (2, N_PREDICTORS - 2),  # the chain that leaves its fold out has two
        "scorer": (0, 1),
    }
    assert counts(run_world(root, changed(memory, "motions", takes(memory, "dev")[0], faster))) == ALL


def test_a_key_that_is_blind_to_what_takes_contribute_is_found_out(
    root: Path, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that the tests above catch: a training that is reused although a take that it was fitted on changed."""
    monkeypatch.setattr(Contributions, "digest", lambda self, takes: "the same")
    run_world(tmp_path / "blind", memory)
    done = run_world(tmp_path / "blind", changed(memory, "features", takes(memory, "train")[0], brighter))
    assert counts(done) == NONE


def test_a_run_after_no_change_or_after_that_of_a_test_take_trains_nothing(root: Path, memory: Memory) -> None:
    done = run_world(root, memory)
    assert counts(done) == NONE
    assert all(outcome.cached for outcome in done.values())
    take = takes(memory, "test")[0]
    done = run_world(root, changed(changed(memory, "features", take, brighter), "motions", take, faster))
    assert counts(done) == NONE
    assert not done["features"].cached
    assert not done["trajectories"].cached


def test_a_new_test_take_retrains_nothing_and_a_new_training_take_everything_that_it_is_fitted_on(
    memory: Memory, base: Path, tmp_path: Path
) -> None:
    last = takes(memory, "test")[-1]
    without = {
        name: table.filter(pc.not_equal(table["take_id"], last)) if "take_id" in table.column_names else table
        for name, table in memory.tables.items()
    }
    run_world(tmp_path, Memory(without))
    done = run_world(tmp_path, memory)
    assert (done["features"].reused, done["features"].computed) == (11, 1)
    assert counts(done) == NONE
    assert all_models(tmp_path) == all_models(base), "what was reused is what a run from scratch makes"
    more = changed(memory, "takes", last, lambda row: row | {"split": "train"})
    assert counts(run_world(tmp_path, more, until="alignment"))["alignment"][1] > 0


def planned(root: Path, memory: Memory, config: PipelineConfig, stage: str) -> PlanRow:
    return next(row for row in plan(stages_on(memory), config, options(root)) if row.stage == stage)


def test_the_plan_says_how_many_trainings_and_why(root: Path, memory: Memory) -> None:
    row = planned(root, memory, with_seeds(0, 5), "alignment")
    assert (row.compute, row.reused, row.bound) == (3, 3, "exactly")
    assert "3 trainings new: final/s5/e_tau" in row.why
    slower = SETTINGS.replace(predictor=SETTINGS.predictor.replace(train=TRAIN.replace(lr=1e-3)))
    row = planned(root, memory, slower, "predictor")
    assert (row.state, row.compute, row.bound, row.why) == ("stale", 7, "exactly", "train.lr 0.003 -> 0.001")
    assert counts(run_world(root, memory, slower)) == {**ALL, "alignment": (N_E_TAU, 0)}
    other = changed(memory, "features", takes(memory, "train")[0], brighter)
    run_world(root, other, until="text_bank")
    row = planned(root, other, slower, "predictor")
    assert (row.compute, row.reused) == (5, 2)
    assert "5 trainings changed" in row.why


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize(("name", "calls", "reused"), [("table", 3, 2), ("model", 1, 0)])
def test_a_kill_between_the_files_of_a_training_costs_that_training_at_most_and_it_goes_on_from_its_checkpoint(
    memory: Memory,
    tmp_path: Path,
    base: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    calls: int,
    reused: int,
) -> None:
    run_world(tmp_path, memory, until="alignment")
    real, seen = getattr(Sink, name), count(1)

    def dying(self: Sink, *given: object) -> object:
        if next(seen) == calls:
            raise Killed
        return real(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(Sink, name, dying)
        with pytest.raises(Killed):
            run_world(tmp_path, memory)
    assert list((tmp_path / "scratch").glob("predictor-*/**/*.safetensors"))
    caplog.clear()
    with caplog.at_level("INFO", "trajpilot"):
        done = run_world(tmp_path, memory, until="predictor")
    assert (done["predictor"].reused, done["predictor"].computed) == (reused, N_PREDICTORS - reused)
    assert "goes on" in caplog.text
    assert model_digests(tmp_path, "predictor", "predictors") == model_digests(base, "predictor", "predictors")
    assert list((tmp_path / "scratch").glob("*/*")) == []


def test_a_folder_in_use_is_not_shared_and_is_free_when_its_holder_has_gone(tmp_path: Path) -> None:
    run = options(tmp_path)
    with leased(run, "predictor-x") as first:
        (first / "mark").touch()
        with leased(run, "predictor-x") as second:
            assert first != second
            assert not (second / "mark").exists()
        assert not second.exists()
    with leased(run, "predictor-x") as third:
        assert third == first
        assert (third / "mark").exists()


def shared(root: Path, memory: Memory, name: str) -> list[str]:
    """Run a stage whose trainings are shared out; return the labels of their groups."""
    stages, labels = stages_on(memory), list[str]()

    def elsewhere(work: KeyedStage, job: ComputeContext, pending: tuple[Source, ...]) -> tuple[Source, ...]:
        groups = share_out(work, job, pending, 600.0)
        config, given = handed(work, job, SETTINGS)
        for group in groups:
            labels.append(group.label())
            compute_group(config, given, stages, group)
        return gather(work, job, pending, groups, {}) if groups else pending

    execute(stages[name], SETTINGS, options(root), stages, elsewhere=elsewhere)
    return labels


def test_trainings_that_are_shared_out_are_groups_of_one_and_give_the_same_models(
    memory: Memory, tmp_path: Path, base: Path
) -> None:
    run_world(tmp_path, memory, until="text_bank")
    labels = [label for name in TRAININGS for label in shared(tmp_path, memory, name)]
    assert labels[0] == "alignment group 1 of 3 · final/s0/e_tau"
    assert len(labels) == N_E_TAU + N_PREDICTORS  # one scorer is nothing to share out
    assert all_models(tmp_path) == all_models(base)
    assert counts(run_world(tmp_path, memory)) == NONE
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_training_that_delivers_no_model_is_refused(memory: Memory, tmp_path: Path) -> None:
    run_world(tmp_path, memory, until="text_bank")
    stages = stages_on(memory)

    def empty(work: Any) -> None:
        for source in work.pending:
            with work.sink.training(source.shard):
                pass

    broken = {**stages, "alignment": replace(stages["alignment"], run=empty)}
    with pytest.raises(StoreError, match="training 'final/s0/e_tau': ended without e_tau"):
        execute(broken["alignment"], SETTINGS, options(tmp_path), broken)


def test_models_that_contradict_each_other_are_refused() -> None:
    assert joined("s", [{"a": "1"}, {"b": "2"}, {"a": "1"}]) == {"a": "1", "b": "2"}
    with pytest.raises(StoreError, match="disagree on 'a': 1, 3"):
        joined("s", [{"a": "1"}, {"a": "3"}])
