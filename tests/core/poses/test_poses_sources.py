"""Pose sources behind one protocol: keys, axes, scale, rejects, and the guard against mixtures."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose
from poses_fixture import FPS, VIDEO, head, video_take
from pydantic import ValidationError
from scipy.spatial.transform import Rotation
from trajectory_fixture import CALIBRATION, Memory, corpus, good_take, run_stage, segment, write_take

from schemas.annotation import Segment, Take
from schemas.arrow import table_of
from schemas.poses import OdometryConfig, TrajectoryConfig
from trajpilot_core.errors import MixedSourcesError
from trajpilot_core.poses.motions import scaled, step_rms
from trajpilot_core.poses.sources.base import check_one_source, origins
from trajpilot_core.poses.sources.video import EstimatedPoses, to_motions
from trajpilot_core.stages import trajectories

ODOMETRY = TrajectoryConfig(source="odometry", odometry=OdometryConfig(size_px=256))


def of_video(take: Take, spans: list[tuple[float, float]]) -> Memory:
    rows = [segment(take, k, start_s, end_s) for k, (start_s, end_s) in enumerate(spans)]
    return Memory({"takes": table_of(Take, [take]), "segments": table_of(Segment, rows)})


def motions(table: pa.Table) -> np.ndarray:
    return np.array(table["motions"].to_pylist()).reshape(-1, 16, 6)


def true_turns(start_s: float, end_s: float) -> np.ndarray:
    """(16, 3) rotation vectors between 17 knots from the first to the last frame, raw camera axes."""
    knots_s = np.linspace(start_s, end_s - 1 / FPS, 17)
    R = Rotation.from_matrix(head(knots_s).R @ np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]]))
    return (R[:-1].inv() * R[1:]).as_rotvec()


def test_a_video_without_any_other_file_gets_its_motions(tmp_path: Path) -> None:
    take, spans = video_take(tmp_path, 2.0), [(0.0, 1.0), (1.0, 2.0)]
    kept = run_stage(tmp_path, of_video(take, spans), ODOMETRY)
    table, rejects, _ = kept.shards[take.take_id]
    assert rejects == []
    assert origins(table) == [("odometry", "camera", "arbitrary")]
    found = motions(table)
    assert_allclose([step_rms(clip[:, :3]) for clip in found], 1.0, rtol=1e-5)
    for clip, span in zip(found, spans, strict=True):
        assert np.rad2deg(np.linalg.norm(clip[:, 3:] - true_turns(*span), axis=1)).max() < 0.5
    assert table["coverage"].to_pylist() == pytest.approx([1 - 1 / FPS] * 2)


def test_keys_rest_on_the_video_and_on_nothing_of_the_pose_file(tmp_path: Path) -> None:
    take = good_take(video=VIDEO)
    (source,) = trajectories.sources(corpus([take]), ODOMETRY, "")  # type: ignore[arg-type]
    assert source.files == (VIDEO, CALIBRATION)
    assumed = ODOMETRY.replace(odometry=OdometryConfig(intrinsics="assumed"))
    assert trajectories.sources(corpus([take]), assumed, "")[0].files == (VIDEO,)  # type: ignore[arg-type]
    other = take.replace(trajectory=None, timesync=None)
    assert trajectories.sources(corpus([other]), ODOMETRY, "")[0] == source  # type: ignore[arg-type]


def test_frames_that_cannot_be_had_and_a_missing_video_are_rejects_with_a_reason(tmp_path: Path) -> None:
    take = video_take(tmp_path, 2.0)
    gone = take.replace(take_id="egoexo4d:gone", video="none.mp4")
    spans = {take: [(0.0, 1.5), (1.0, 1.05), (30.0, 31.0)], gone: [(0.0, 1.5)]}
    rows = [segment(t, k, *span) for t, own in spans.items() for k, span in enumerate(own)]
    kept = Memory({"takes": table_of(Take, [gone, take]), "segments": table_of(Segment, rows)})
    run_stage(tmp_path, kept, ODOMETRY)
    table, rejects, n_in = kept.shards[take.take_id]
    assert (table.num_rows, n_in) == (1, 3)
    assert {r.segment[-4:]: r.code.value for r in rejects if r.segment} == {
        "0001": "POSES_TOO_SHORT",
        "0002": "FRAME_MISMATCH",
    }
    (lost,) = kept.shards[gone.take_id][1]
    assert (lost.code, lost.n_units, lost.segment) == ("VIDEO_MISSING", 1, None)


def test_a_broken_calibration_is_reported_and_not_guessed_around(tmp_path: Path) -> None:
    take = video_take(tmp_path, 2.0, calibration="lens.jsonl")
    (tmp_path / "lens.jsonl").write_text("{}\nnothing\n")
    (lost,) = run_stage(tmp_path, of_video(take, [(0.0, 1.5)]), ODOMETRY).shards[take.take_id][1]
    assert lost.code == "CALIBRATION_MISSING"


def clip_of(R: np.ndarray, t: np.ndarray) -> EstimatedPoses:
    T = np.tile(np.eye(4), (len(R), 1, 1))
    T[:, :3, :3], T[:, :3, 3] = R, t
    return EstimatedPoses(np.linspace(0.0, 1.5, len(R)), T, 1.0)


def test_opencv_poses_get_the_axes_of_the_raw_aria_camera() -> None:
    R = Rotation.from_rotvec(np.random.default_rng(0).normal(0, 0.3, (17, 3))).as_matrix()
    t = np.random.default_rng(1).normal(0, 1, (17, 3))
    found = to_motions("pi3", clip_of(R, t), 2.0, TrajectoryConfig(source="pi3", scale="raw"))
    custom = Rotation.from_matrix(R @ np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]]))
    assert_allclose(found.motions[:, 3:], (custom[:-1].inv() * custom[1:]).as_rotvec(), atol=1e-12)
    assert_allclose(found.motions[:, :3], custom[:-1].inv().apply(np.diff(t, axis=0)), atol=1e-12)
    upright = to_motions("pi3", clip_of(R, t), 2.0, TrajectoryConfig(source="pi3", scale="raw", frame="camera_upright"))
    here = Rotation.from_matrix(R)
    assert_allclose(upright.motions[:, :3], here[:-1].inv().apply(np.diff(t, axis=0)), atol=1e-12)


def test_an_upright_frame_turns_the_motions_of_pose_files_too(tmp_path: Path) -> None:
    write_take(tmp_path)
    raw, upright = (
        motions(run_stage(tmp_path, corpus([good_take()]), TrajectoryConfig(frame=f)).shards[good_take().take_id][0])
        for f in ("camera", "camera_upright")
    )
    turn = np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]])
    for part in (slice(0, 3), slice(3, 6)):
        assert_allclose(upright[..., part], raw[..., part] @ turn.T, atol=1e-6)


def test_poses_that_are_none_or_explain_little_are_refused() -> None:
    good = clip_of(np.tile(np.eye(3), (5, 1, 1)), np.zeros((5, 3)))
    T = good.T_clip_camera
    for damaged, code in (
        (T * np.nan, "TRAJ_NOT_FINITE"),
        (T * 1.01, "TRAJ_QUATERNION"),
        (T * np.array([-1, 1, 1, 1])[:, None], "TRAJ_QUATERNION"),
        (T[:1], "POSES_TOO_SHORT"),
    ):
        poses = EstimatedPoses(good.pts_s[: len(damaged)], damaged, 1.0)
        found = to_motions("pi3", poses, 2.0, TrajectoryConfig(source="pi3"))
        assert found.code == code
    weak = to_motions("odometry", good._replace(quality=0.3), 2.0, ODOMETRY)
    assert weak.code == "TRAJ_LOW_QUALITY"


def test_the_scale_rule_gives_every_clip_the_same_step_and_leaves_a_still_one_still() -> None:
    steps = np.random.default_rng(0).normal(size=(16, 3))
    assert step_rms(scaled(steps, "rms", None)) == pytest.approx(1.0)
    assert step_rms(scaled(40 * steps, "rms", 0.07)) == pytest.approx(0.07)
    assert_allclose(scaled(steps, "raw", 2.0), 2 * steps)
    assert_allclose(scaled(np.zeros((16, 3)), "rms", 0.07), 0.0)


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValidationError, match="frame device needs the calibration"):
        TrajectoryConfig(source="odometry", frame="device")


def test_motions_of_two_sources_or_frames_are_never_mixed() -> None:
    table = pa.table({"source": ["aria", "odometry"], "frame": ["camera"] * 2, "scale": ["metric", "arbitrary"]})
    with pytest.raises(MixedSourcesError, match="1 segments from aria, camera, metric; 1 segments from odometry"):
        check_one_source(table)
    with pytest.raises(MixedSourcesError):
        check_one_source(table.slice(0, 1), table.slice(1))
    check_one_source(table.slice(0, 1), table.slice(0, 1))


def test_only_a_model_needs_the_gpu() -> None:
    on_gpu = trajectories.STAGE.on_gpu
    assert not on_gpu(TrajectoryConfig())
    assert not on_gpu(ODOMETRY)
    assert on_gpu(TrajectoryConfig(source="pi3"))


def test_keys_of_every_source_are_made_without_the_libraries_that_compute_poses() -> None:
    """The opposite case is the module that computes Aria's motions: it loads two of them."""
    loaded = []
    for name in ("base", "take"):
        code = (
            f"import sys, trajpilot_core.stages, trajpilot_core.poses.sources.{name}\n"
            "from trajpilot_core.poses.sources.base import pose_source\n"
            "for source in ('aria', 'odometry', 'pi3'): pose_source(source).files, pose_source(source).facts\n"
            "print(*sorted({'cv2', 'polars', 'scipy', 'torch'} & set(sys.modules)))\n"
        )
        loaded.append(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split())
    assert loaded == [[], [b"polars", b"scipy"]]
