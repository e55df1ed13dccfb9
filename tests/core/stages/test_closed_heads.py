"""Class heads from training to the rows of the tables: on a small world whose labels are a closed vocabulary."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from planning_world import Memory, WorldSize, planning_world, run_stage

from schemas.config import CompletedEvaluation
from schemas.training import (
    GOAL_DROPOUT,
    AlignmentConfig,
    ClosedDecodingConfig,
    PredictorConfig,
    ScorerConfig,
    TrainConfig,
)
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.evaluation.predictions import RowsResult, predict_all
from trajpilot_core.stages import STAGES
from trajpilot_core.stages.evaluation import trained as judge

SIZE = WorldSize(tasks=2, steps=4, alternatives=2, train=24, dev=4, test=4, max_horizon=4, segments=6)
TRAIN = TrainConfig(epochs=12, patience=None, lr=3e-3, batch=32, precision="fp32")
ALIGN = AlignmentConfig(width=16, layers=1, heads=2, hidden=16, folds=1, seeds=(0,), train=TRAIN)
PREDICT = PredictorConfig(
    width=32, layers=1, heads=2, hidden=32, queries=2, head="classes", bridge_weight=0.15, train=TRAIN
)
DECODING = ClosedDecodingConfig(weight=1.0, smoothing=0.5, is_masked=True)
SCORE = ScorerConfig(
    candidates=4,
    prefetch=6,
    width=16,
    heads=2,
    layers=1,
    ablations=("no_labels",),
    decoding=DECODING,
    train=TRAIN.replace(epochs=3),
)
EVALUATE = CompletedEvaluation(shuffles=2, headroom_pools=(1, 4))
DROPOUT = {"no_traj_goal_dropout": "final/no_traj_goal_dropout", "oracle_goal_dropout": "final/traj_goal_dropout"}
"""Row of a goal-dropout twin -> its model."""


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """A world with everything trained, goal-dropout twins included."""
    folder = tmp_path_factory.mktemp("closed")
    memory = planning_world(SIZE)
    run_stage(STAGES["alignment"], ALIGN, memory, folder / "alignment")
    run_stage(STAGES["predictor"], PREDICT.replace(twin_goal_dropout=GOAL_DROPOUT), memory, folder / "predictor")
    run_stage(STAGES["scorer"], SCORE, memory, folder / "scorer")
    return memory


@pytest.fixture(scope="module")
def evaluated(memory: Memory) -> tuple[pa.Table, RowsResult]:
    """The predictions, and what is complete once they were read."""
    found = predict_all(memory, EVALUATE, "cpu", no_progress)
    return pa.concat_tables(list(found.predictions)), found


@pytest.fixture(scope="module")
def predictions(evaluated: tuple[pa.Table, RowsResult]) -> pa.Table:
    return evaluated[0]


def of(predictions: pa.Table, row: str) -> pa.Table:
    return predictions.filter(pc.equal(predictions["variant"], row))


def share_right(table: pa.Table) -> float:
    return float(np.mean(np.array(table["decoded_id"].to_pylist()) == np.array(table["label_id"].to_pylist())))


def test_every_row_answers_and_only_labels_that_the_scenario_allows(memory: Memory, predictions: pa.Table) -> None:
    rows = set(predictions["variant"].to_pylist())
    assert {"no_traj", "endpoint_traj", "oracle", "scorer", "no_traj_no_prior", "graph_only", "majority"} <= rows
    assert set(DROPOUT) <= rows
    scenario_of = {take["take_id"]: take["scenario"] for take in memory.table("takes").to_pylist()}
    allowed = {
        (row["scenario"], row["label_id"]) for row in memory.table("scenario_labels").to_pylist() if row["is_allowed"]
    }
    for row in ("no_traj", "oracle", "scorer", "no_traj_no_prior", "graph_only", *DROPOUT):
        for answer in of(predictions, row).to_pylist():
            assert (scenario_of[answer["take_id"]], answer["decoded_id"]) in allowed, row


def test_how_many_true_labels_the_masks_allow_is_counted(evaluated: tuple[pa.Table, RowsResult]) -> None:
    table, found = evaluated
    for row in found.coverage:
        steps = of(table.filter(pc.equal(table["horizon"], row.horizon)), "no_traj")
        assert (row.n_steps, row.n_windows) == (steps.num_rows, steps.num_rows // row.horizon)
        right = np.array(steps["decoded_id"].to_pylist()) == np.array(steps["label_id"].to_pylist())
        assert right.sum() <= row.n_allowed <= row.n_steps
    assert [row.horizon for row in found.coverage] == [3, 4]


def test_the_head_learns_and_motion_helps_the_row_that_sees_it(predictions: pa.Table) -> None:
    majority, no_traj, oracle = (share_right(of(predictions, row)) for row in ("majority", "no_traj", "oracle"))
    assert no_traj > majority + 0.2
    assert oracle > majority + 0.2


def test_goal_dropout_twins_learn_are_judged_and_stand_next_to_their_originals(
    memory: Memory, predictions: pa.Table
) -> None:
    judged = {one.check for one in judge(memory, EVALUATE)}
    for row, model in DROPOUT.items():
        assert share_right(of(predictions, row)) > share_right(of(predictions, "majority")) + 0.2
        assert f"trained: {model}, seed 0" in judged
        original = of(predictions, row.removesuffix("_goal_dropout"))
        assert of(predictions, row)["window_id"].equals(original["window_id"])
        assert of(predictions, row)["top_scores"].to_pylist() != original["top_scores"].to_pylist()


def test_a_sequence_is_decoded_under_the_prior_and_without_it_step_by_step(predictions: pa.Table) -> None:
    together, alone = of(predictions, "no_traj").to_pylist(), of(predictions, "no_traj_no_prior").to_pylist()
    assert all(row["decoded_id"] == row["top_ids"][0] for row in alone)
    assert any(a["decoded_id"] != b["decoded_id"] for a, b in zip(together, alone, strict=True))


def test_the_bridge_changes_what_is_learned(memory: Memory, tmp_path: Path) -> None:
    learned = []
    for weight in (0.15, 0.0):
        own = Memory(tables=dict(memory.tables), entries=dict(memory.entries))
        run_stage(
            STAGES["predictor"],
            PREDICT.replace(bridge_weight=weight, train=TRAIN.replace(epochs=1)),
            own,
            tmp_path / str(weight),
        )
        learned.append(own.models("predictors").read("final/s0/traj")["class_head.weight"])
    assert not np.array_equal(*learned)
