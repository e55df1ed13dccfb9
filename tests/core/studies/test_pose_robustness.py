"""The robustness table: rows that must be equal are, a mismatch is seen, and the accuracy that goes with it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from planning_world import Memory, WorldSize, planning_world, run_stage
from poses_fixture import head
from scipy.spatial.transform import Rotation

from deployments.cli import poses
from schemas.config import PipelineConfig
from schemas.observation import motions_schema
from schemas.training import AlignmentConfig, PredictorConfig, TrainConfig
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.errors import InputError
from trajpilot_core.poses.accuracy import clip_error, joined, sim3_residual_m
from trajpilot_core.poses.motions import relative_motions
from trajpilot_core.poses.se3 import Poses
from trajpilot_core.stages import alignment
from trajpilot_core.studies.pose_accuracy import distributions
from trajpilot_core.studies.pose_robustness import SETTINGS, common, robustness, score_rows

TRAIN = TrainConfig(epochs=6, patience=None, lr=3e-3, batch=32, precision="fp32")
ALIGNMENT = AlignmentConfig(width=32, layers=1, heads=2, hidden=64, folds=1, seeds=(0,), train=TRAIN.replace(epochs=12))
CFG = PredictorConfig(width=32, layers=1, heads=2, hidden=64, queries=4, dropout=0.0, train=TRAIN.replace(epochs=12))
SIZE = WorldSize(tasks=2, steps=4, alternatives=3, train=16, dev=4, test=8, motion_strength=3.0, max_horizon=5)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    memory = planning_world(SIZE)
    run_stage(alignment.STAGE, ALIGNMENT, memory, tmp_path_factory.mktemp("alignment"))
    return memory


def from_video(memory: Memory, change: object) -> pa.Table:
    """The same head motions as another source gives them."""
    own = memory.table("motions")
    motions = np.array(own["motions"].to_pylist(), dtype=np.float32).reshape(-1, 16, 6)
    flat = pa.array(change(motions).astype(np.float32).ravel())  # type: ignore[operator]
    columns = {name: own[name] for name in own.column_names}
    columns |= {"source": ["odometry"] * len(own), "scale": ["arbitrary"] * len(own)}
    return pa.table({**columns, "motions": pa.FixedSizeListArray.from_arrays(flat, 96)}, schema=motions_schema())


@pytest.mark.slow
def test_motions_in_other_axes_and_lengths_are_a_mismatch_that_training_on_them_mends(
    world: Memory, tmp_path: Path
) -> None:
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])

    def other(motions: np.ndarray) -> np.ndarray:
        return np.concatenate([9 * motions[..., :3] @ turn.T, motions[..., 3:] @ turn.T], axis=-1)

    result = robustness(world, from_video(world, other), CFG, Runtime("", "cpu", 1, tmp_path))
    found = {row.name: row for row in result.rows}
    same, mismatch = found["files -> files"], found["files -> video, lengths as estimated"]
    assert same.mid.low is not None
    assert same.mid.high is not None
    assert same.mid.low < same.mid.value < same.mid.high
    assert mismatch.mid_difference is not None
    assert mismatch.mid_difference.high is not None
    assert mismatch.mid_difference.high < 0, "the planted mismatch must be seen"
    for name in ("video -> video", "files + video -> video"):
        assert found[name].mid.value > mismatch.mid.value
    assert (result.n_takes, result.windows_lost) == (SIZE.test, 0)


def test_equal_answers_give_equal_rows_and_a_difference_of_nothing() -> None:
    takes = np.concatenate([np.repeat(np.arange(8), 5), np.repeat(np.arange(8), 3)])
    every = np.random.default_rng(0).integers(0, 2, (len(takes), 2)).astype(float)
    rows = score_rows({setting.name: every for setting in SETTINGS}, takes)
    assert [row.name for row in rows] == [setting.name for setting in SETTINGS]
    for row in rows:
        assert row.mid.value == pytest.approx(100 * every[:, 0].mean())
        assert row.full.value == pytest.approx(100 * every[:, 1].mean())
        assert row.mid_difference is None or row.mid_difference[:3] == (0.0, 0.0, 0.0)


def test_rows_use_the_segments_that_both_sources_have(world: Memory) -> None:
    own = world.table("motions")
    kept = common(own, from_video(world, lambda m: m).slice(5))
    assert [len(t) for t in kept] == [len(own) - 5] * 2
    with pytest.raises(InputError, match="no segment has motions from both"):
        common(own.slice(0, 3), own.slice(3))


def test_errors_of_a_clip_are_what_was_planted() -> None:
    true = head(np.linspace(0, 2, 17))
    path = Poses(Rotation.from_matrix(true.R).as_quat(), true.t_m)
    motions = relative_motions(path, 1)[0]
    exact = clip_error(joined(motions), path)
    assert exact.rotation_deg == pytest.approx(0.0, abs=1e-4)
    assert exact.position_m == pytest.approx(0.0, abs=1e-9)
    motions[:, :3] *= 30.0
    assert clip_error(joined(motions), path).position_m == pytest.approx(0.0, abs=1e-9), "the scale is free"
    motions[3, 3:] += np.deg2rad([0.0, 2.0, 0.0])
    bent = clip_error(joined(motions), path)
    assert 1.9 < bent.rotation_deg < 2.1
    assert bent.position_m > 0.0005
    assert exact.turned_deg > 10


def test_a_path_that_says_nothing_leaves_the_whole_spread() -> None:
    true_m = np.random.default_rng(0).normal(size=(17, 3))
    spread = float(np.sqrt(np.sum((true_m - true_m.mean(axis=0)) ** 2, axis=1).mean()))
    assert_allclose(sim3_residual_m(np.zeros((17, 3)), true_m), spread)
    rotation = Rotation.from_rotvec([0.3, -0.2, 1.0]).as_matrix()
    assert sim3_residual_m(0.01 * true_m @ rotation.T + 5, true_m) == pytest.approx(0.0, abs=1e-12)


def test_distributions_are_told_by_quality() -> None:
    true = head(np.linspace(0, 2, 17))
    path = Poses(Rotation.from_matrix(true.R).as_quat(), true.t_m)
    good, quality = clip_error(path, path), (0.95, 0.75, 0.75)
    found = distributions([(good._replace(rotation_deg=k), q) for k, q in enumerate(quality)])
    assert [(d.name, d.n) for d in found] == [("all", 3), ("quality 0.7 to 0.8", 2), ("quality 0.9 to 1", 1)]
    assert found[0].rotation_deg == pytest.approx((1.0, 1.8))


def test_the_command_says_what_is_missing_and_gives_no_interval_where_takes_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="stage ingest has not run"):
        poses.step(root=str(tmp_path))
    with pytest.raises(InputError, match="reads no videos"):
        poses.from_video(PipelineConfig(), "aria", None)
    assert poses.from_video(PipelineConfig(), "odometry", None).trajectories.scale == "raw"
    few = np.repeat(np.arange(5), 2)
    row = score_rows({setting.name: np.ones((10, 2)) for setting in SETTINGS}, few)[1]
    assert str(row.mid) == "100.0 (too few takes)"
    assert str(row.mid_difference) == "0.0 (too few takes)"
