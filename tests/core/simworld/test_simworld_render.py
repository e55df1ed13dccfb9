"""The rendered video moves as the poses say, and shows what it should and no more."""

from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from drawn_tables import middle_world
from scipy.spatial.transform import Rotation

from schemas.world import WorldConfig
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.motion import head_motion, head_poses
from trajpilot_core.simworld.world.render import camera_matrix, render_at, write_video

STEP = 3
"""Frames between the two pictures whose rotation is recovered."""


def decoded(path: Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def large_world() -> WorldConfig:
    """The demo's world in pictures that are large enough, and near enough to each other, to measure motion in."""
    return middle_world().replace(fps=15, size_px=256)


def recovered_rotation(first: np.ndarray, second: np.ndarray, camera: np.ndarray) -> Rotation:
    """Return the camera's rotation from `first` to `second` (upright RGB), from tracked corners."""
    a, b = (cv2.cvtColor(x, cv2.COLOR_RGB2GRAY) for x in (first, second))
    corners = cv2.goodFeaturesToTrack(a, 400, 0.01, 5)
    moved, found, _ = cv2.calcOpticalFlowPyrLK(a, b, corners, None, winSize=(15, 15), maxLevel=3)
    keep = found[:, 0] == 1
    essential, mask = cv2.findEssentialMat(corners[keep], moved[keep], camera, cv2.RANSAC, 0.999, 0.7)
    _, rotation, _, _ = cv2.recoverPose(essential[:3], corners[keep], moved[keep], camera, mask=mask)
    return Rotation.from_matrix(rotation.T)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, Path]:
    """Decoded frames of one demo take, its true head rotations (N, 3, 3), the camera matrix, the file."""
    config = large_world().replace(train_takes=1, test_takes=1, broken="none", takes_per_capture=1, segments=6)
    world = sample_world(config)
    take = world.takes[0]
    motion = head_motion(world, take)
    path = tmp_path_factory.mktemp("video") / "take.mp4"
    t_s = np.arange(take.n_frames) / config.fps
    write_video(path, render_at(world, take, motion, t_s), config.fps, config.crf)
    rotation, _ = head_poses(motion, t_s)
    return decoded(path), rotation, camera_matrix(config.size_px, config.view_deg), path


def errors_deg(frames: list[np.ndarray], rotation: np.ndarray, camera: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return, per pair of frames, the error of the recovered rotation and the size of the true one, degrees."""
    cv2.setRNGSeed(0)
    error, size = [], []
    for k in range(0, len(frames) - STEP, 11):
        true = Rotation.from_matrix(rotation[k].T @ rotation[k + STEP])
        error.append(np.rad2deg((recovered_rotation(frames[k], frames[k + STEP], camera) * true.inv()).magnitude()))
        size.append(np.rad2deg(true.magnitude()))
    return np.array(error), np.array(size)


def test_the_rotation_between_frames_can_be_recovered_from_the_images(clip: tuple) -> None:
    """The planted fault: poses of another moment."""
    frames, rotation, camera, _ = clip
    error, size = errors_deg(frames, rotation, camera)
    assert np.median(size) > 1.5
    assert np.median(error) < 0.8
    assert np.quantile(error, 0.8) < 1.2
    wrong, _ = errors_deg(frames, np.roll(rotation, 20, axis=0), camera)
    assert np.median(wrong) > 1.5


def test_the_file_holds_every_frame_evenly_with_b_frames_and_no_date(clip: tuple) -> None:
    frames, rotation, _, path = clip
    assert len(frames) == len(rotation)
    with av.open(str(path)) as container:
        assert "creation_time" not in container.metadata
        stream = container.streams.video[0]
        found = list(container.decode(video=0))
        times = np.array([float(frame.pts * stream.time_base) for frame in found])
        assert {1, 2, 3} <= {int(frame.pict_type) for frame in found}  # I, P, B
    assert times == pytest.approx(np.arange(len(times)) / large_world().fps, abs=1e-6)
