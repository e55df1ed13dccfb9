"""Visual odometry: what it finds in clips whose poses are known, and why it refuses others."""

import json
from pathlib import Path

import cv2
import numpy as np
import pytest
from checkout import DATA
from numpy.testing import assert_allclose
from poses_fixture import SIDE, VIEW_DEG, angle_deg, frames, gray, head, times
from scipy.spatial.transform import Rotation
from test_poses_sources import of_video, run_stage
from trajectory_fixture import good_take

from schemas.poses import OdometryConfig, TrajectoryConfig
from trajpilot_core.poses.geometry import (
    UPRIGHT_FROM_RAW,
    Lens,
    PoseFault,
    Poses,
    assumed_lens,
    compose,
    known_lens,
    rays,
)
from trajpilot_core.poses.odometry.clip import ClipPoses, estimate
from trajpilot_core.poses.sources.take import capture_motions

CFG, LENS = OdometryConfig(), assumed_lens(VIEW_DEG)
FISHEYE = {
    "Name": "FisheyeRadTanThinPrism",
    "Params": [1220.0, 1461.1, 1447.1, 0.41, -0.46, 0.04, 1.3, -1.77, 0.655, -8e-5, 4e-5, -6e-4, 6e-4, 5e-4, 2e-4],
}


def poses(images: np.ndarray, lens: Lens = LENS, cfg: OdometryConfig = CFG) -> ClipPoses:
    found = estimate(gray(images), lens, 1.0, cfg)
    assert isinstance(found, ClipPoses), found
    return found


def fault(images: np.ndarray) -> str:
    found = estimate(gray(images), LENS, 1.0, CFG)
    return found.code.value


def test_a_moving_head_is_found_up_to_scale() -> None:
    true = head(times())
    found = poses(frames(true))
    assert found.quality > 0.8
    assert angle_deg(found.T_clip_camera[:, :3, :3], true.R) < 0.5
    c = found.T_clip_camera[:, :3, 3]
    wanted = (true.t_m - true.t_m[0]) @ true.R[0]
    scale = float((c * wanted).sum() / (c * c).sum())
    off_m = np.linalg.norm(scale * c - wanted, axis=1).max()
    assert off_m < 0.05 * np.linalg.norm(wanted, axis=1).max()


def test_a_head_that_only_turns_has_no_translation() -> None:
    true = head(times(), move=0.0)
    found = poses(frames(true))
    assert_allclose(found.T_clip_camera[:, :3, 3], 0.0)
    assert angle_deg(found.T_clip_camera[:, :3, :3], true.R) < 0.3


def test_a_long_clip_keeps_one_scale_over_its_windows() -> None:
    true = head(times(30, 2.6))
    found = poses(frames(true))
    c = found.T_clip_camera[:, :3, 3]
    wanted = (true.t_m - true.t_m[0]) @ true.R[0]
    lengths = [np.linalg.norm(np.diff(path, axis=0), axis=1) for path in (c, wanted)]
    parts = [float(a.sum() / b.sum()) for a, b in zip(*(np.array_split(x, 3) for x in lengths), strict=True)]
    assert max(parts) / min(parts) < 1.25
    assert angle_deg(found.T_clip_camera[:, :3, :3], true.R) < 1.5


def test_equal_frames_give_equal_poses() -> None:
    images = frames(head(times(8, 1.0)))
    assert np.array_equal(poses(images).T_clip_camera, poses(images).T_clip_camera)


def test_a_picture_that_was_squashed_gives_the_same_turns() -> None:
    true = head(times(8, 1.0))
    images = gray(frames(true))
    cut = images[:, 48:-48]
    square = np.stack([cv2.resize(image, (SIDE, SIDE)) for image in cut]).astype(np.uint8)
    found = estimate(square, LENS, SIDE / cut.shape[1], CFG)
    assert angle_deg(found.T_clip_camera[:, :3, :3], true.R) < 1.0


def test_a_clip_that_cannot_be_used_is_refused_with_its_reason() -> None:
    images, other = (frames(head(times(6, 0.6)), seed=seed) for seed in (0, 1))
    assert fault(images[:2]) == "POSES_TOO_SHORT"
    assert fault(np.full_like(images, 90)) == "POSES_FEW_CORNERS"
    assert fault(np.concatenate([images[:3], other[3:]])) == "POSES_LOST"
    assert fault(np.repeat(images[:1], 6, axis=0)) == "POSES_STATIC"


def test_noise_is_refused_or_found_but_never_a_crash() -> None:
    for seed in range(3):
        images = np.random.default_rng(seed).integers(0, 255, (5, 64, 64), dtype=np.uint8)
        assert isinstance(estimate(images, LENS, 1.0, CFG), PoseFault | ClipPoses)


def test_the_lens_of_a_real_kind_of_calibration_is_undone() -> None:
    lens = known_lens(FISHEYE)
    assert lens.side_px == 2880
    angle, around = np.linspace(0.05, 1.0, 40), np.linspace(0, 6, 40)
    ray = np.column_stack([np.sin(angle) * np.cos(around), np.sin(angle) * np.sin(around), np.cos(angle)])
    raw_px = project(FISHEYE["Params"], ray)  # type: ignore[arg-type]
    share = (raw_px + 0.5) / 2880
    upright = np.column_stack([1 - share[:, 1], share[:, 0]])
    assert_allclose(rays(lens, upright, 1.0), ray @ UPRIGHT_FROM_RAW.T, atol=2e-6)


def project(params: list[float], ray: np.ndarray) -> np.ndarray:
    """Forward model as the documentation of Project Aria states it."""
    f, cx, cy, *rest = params
    k, p, s = np.array(rest[:6]), np.array(rest[6:8]), np.array(rest[8:])
    angle = np.arctan2(np.linalg.norm(ray[:, :2], axis=1), ray[:, 2])
    bent = angle * (1 + sum(k[i] * angle ** (2 * i + 2) for i in range(6)))
    xy = ray[:, :2] / np.linalg.norm(ray[:, :2], axis=1, keepdims=True) * bent[:, None]
    r2 = np.sum(xy**2, axis=1, keepdims=True)
    tangential = 2 * (xy @ p)[:, None] * xy + r2 * p
    prism = np.hstack([s[0] * r2 + s[1] * r2**2, s[2] * r2 + s[3] * r2**2])
    return f * (xy + tangential + prism) + [cx, cy]


def test_a_projection_of_no_known_kind_is_no_lens() -> None:
    params = ([1, 2], [0.0] * 4, [float("nan")] * 4, "x")
    linear = [{"Name": "Linear", "Params": values} for values in params]
    for record in (None, {}, {"Name": "Spherical", "Params": [1.0] * 4}, *linear):
        assert known_lens(record) is None, record


def joined(motions: np.ndarray) -> Poses:
    """The 17 poses of (16, 6) motions, starting at the identity."""
    path = [Poses(np.array([[0.0, 0.0, 0.0, 1.0]]), np.zeros((1, 3)))]
    for step in motions:
        path.append(compose(path[-1], Poses(Rotation.from_rotvec(step[None, 3:]).as_quat(), step[None, :3])))
    return Poses(*(np.vstack(part) for part in zip(*path, strict=True)))


def clip_error(estimated: Poses, true: Poses) -> tuple[float, float, float]:
    """Largest angle, degrees; root mean square distance after the best similarity, metres and as a share of the spread.

    Source of the similarity: Umeyama, Least-squares estimation of transformation parameters, 1991.
    """
    off = Rotation.from_quat(true.q_xyzw).inv() * Rotation.from_quat(estimated.q_xyzw)
    a, b = (poses.t_m - poses.t_m.mean(axis=0) for poses in (estimated, true))
    turned = Rotation.align_vectors(b, a)[0].apply(a)
    left, spread = (
        np.linalg.norm(rest) / np.sqrt(len(b)) for rest in (b - turned * (turned * b).sum() / (a**2).sum(), b)
    )
    return float(np.rad2deg(off.magnitude()).max()), float(left), float(left / spread)


MPS = DATA / "aria_mps_sample"
FOLDER = "takes/aria_mps_sample_1"
SPANS = [(float(at), float(at) + 2.0) for at in np.arange(0.2, 9.2, 3.0)]
"""Clips of two seconds; docs/decisions/poses.md has one every half second."""


@pytest.mark.slow
def test_odometry_follows_a_real_head_through_its_fisheye(capsys: pytest.CaptureFixture[str]) -> None:
    """Run with `-s` to see the figures."""
    assert json.loads((MPS / "takes.json").read_text())
    poses = f"{FOLDER}/trajectory/closed_loop_trajectory.csv"
    lens = f"{FOLDER}/trajectory/online_calibration.jsonl"
    take = good_take(
        video=f"{FOLDER}/frame_aligned_videos/downscaled/448/aria01_214-1.mp4",
        camera="aria01_214-1",
        fps=30.0,
        timesync="captures/aria_mps_sample/timesync.csv",
        timesync_start=4,
        timesync_end=345,
        n_frames=340,
        duration_s=340 / 30,
        trajectory=poses,
        calibration=lens,
    )
    cfg = TrajectoryConfig(source="odometry", scale="raw")
    kept = run_stage(Path(MPS), of_video(take, SPANS), cfg)
    table, rejects, _ = kept.shards[take.take_id]
    assert rejects == []
    # an estimate ends with the last frame of its segment
    spans = [[f"s{at}", start_s, end_s - 1 / take.fps] for at, (start_s, end_s) in enumerate(SPANS)]
    (true,) = capture_motions(str(MPS), [(take, spans)], TrajectoryConfig())
    both = (np.array(motions["motions"].to_pylist()).reshape(-1, 16, 6) for motions in (table, true.table))
    errors = [clip_error(joined(clip), joined(of_files)) for clip, of_files in zip(*both, strict=True)]
    rotation, position, share = zip(*errors, strict=True)
    with capsys.disabled():
        for name, values in (("rotation, deg", rotation), ("position, m", position), ("of the spread", share)):
            print(f"\n{name}: median {np.median(values):.3f}, 90 % {np.percentile(values, 90):.3f}", end="")  # noqa: T201
    assert len(errors) == len(SPANS)
    assert np.median(rotation) < 1.0
    assert np.median(share) < 0.05
