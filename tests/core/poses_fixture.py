"""A room of dots seen by a head whose poses are known, as frames and as a take on disk."""

import functools
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from trajectory_fixture import good_take

from schemas.annotation import Take
from trajpilot_core.simworld.video import write_video

SIDE, VIEW_DEG, FPS = 256, 90.0, 15
FOCAL = SIDE / 2 / np.tan(np.deg2rad(VIEW_DEG) / 2)
VIDEO = "take.mp4"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Head:
    """Poses T_room_camera in upright axes at times t_s."""

    R: Array
    t_m: Array


def head(t_s: Array, turn: float = 1.0, move: float = 1.0) -> Head:
    """A smooth motion; `turn` and `move` scale its two parts."""
    vector = turn * np.stack([0.1 * np.sin(1.3 * t_s), 0.25 * np.sin(0.9 * t_s), 0.06 * np.cos(1.1 * t_s)], axis=1)
    shift = move * np.stack([0.25 * np.sin(1.1 * t_s), 0.1 * np.cos(0.8 * t_s), 0.2 * t_s], axis=1)
    return Head(Rotation.from_rotvec(vector).as_matrix(), shift)


def frames(path: Head, seed: int = 0) -> NDArray[np.uint8]:
    """Draw (T, SIDE, SIDE, 3): 700 dots between 1 and 6 m, drawn to a fraction of a pixel."""
    rng = np.random.default_rng(seed)
    depth = rng.uniform(1.0, 6.0, 700)
    dots = np.column_stack([rng.uniform(-1.3, 1.3, (700, 2)) * depth[:, None], depth])
    shade, radius = rng.integers(60, 255, (700, 3)), rng.uniform(0.02, 0.06, 700)
    drawn = []
    for R, t_m in zip(path.R, path.t_m, strict=True):
        image = np.full((SIDE, SIDE, 3), 30, np.uint8)
        seen = (dots - t_m) @ R
        for at in np.argsort(-seen[:, 2]):
            x, y, z = seen[at]
            if z > 0.3:
                place = np.array([x, y]) / z * FOCAL + (SIDE - 1) / 2
                if (np.abs(place) < 4 * SIDE).all():
                    centre = np.rint(place * 16).astype(int).tolist()
                    size = int(max(1.5, radius[at] / z * FOCAL) * 16)
                    cv2.circle(image, centre, size, shade[at].tolist(), -1, cv2.LINE_AA, 4)
        drawn.append(cv2.GaussianBlur(image, (0, 0), 0.7).astype(np.uint8))
    return np.stack(drawn)


def gray(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.stack([cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) for image in images]).astype(np.uint8)


def times(n: int = 16, seconds: float = 2.0) -> Array:
    return np.linspace(0.0, seconds, n)


def angle_deg(a: Array, b: Array) -> float:
    """Largest angle between the rotations (T, 3, 3), each relative to its first."""
    first_a, first_b = Rotation.from_matrix(a[0]), Rotation.from_matrix(b[0])
    left, right = first_a.inv() * Rotation.from_matrix(a), first_b.inv() * Rotation.from_matrix(b)
    return float(np.rad2deg((left.inv() * right).magnitude()).max())


@functools.cache
def _room(n_frames: int) -> NDArray[np.uint8]:
    return frames(head(np.arange(n_frames) / FPS))


def video_take(folder: Path, seconds: float = 4.0, **changes: object) -> Take:
    """Write a video of the room and return its take, which has neither pose file, clock nor calibration."""
    t_s = np.arange(round(seconds * FPS)) / FPS
    write_video(folder / VIDEO, _room(len(t_s)), FPS, 20)
    none = {"trajectory": None, "timesync": None, "calibration": None, "timesync_start": None, "timesync_end": None}
    facts = {"video": VIDEO, "fps": float(FPS), "n_frames": len(t_s), "duration_s": len(t_s) / FPS}
    return good_take(**{**none, **facts, **changes})
