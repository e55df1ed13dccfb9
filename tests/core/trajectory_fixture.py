"""A small take on disk with a 1 kHz pose file, clock and calibration, to be damaged by tests."""

import functools
import json
from pathlib import Path

import numpy as np
from scipy.spatial.transform import Rotation

from schemas.annotation import Take
from schemas.config import TrajectoryConfig
from trajpilot_core.trajectory.take import Done, capture_controls

SHARED = Path(__file__).parents[3] / "shared" / "data"
FPS, N_FRAMES, FIRST_ROW = 30.0, 240, 5
DURATION_S = N_FRAMES / FPS
CLOCK_NS = 7_000_000_000_123
"""Device time of frame 0."""
LEAD_US = 300_000
COLUMNS = [
    "graph_uid", "tracking_timestamp_us", "utc_timestamp_ns",
    *(f"t{axis}_world_device" for axis in "xyz"), *(f"q{axis}_world_device" for axis in "xyzw"),
    "quality_score", "note",
]  # fmt: skip
T_DEVICE_CAMERA = Rotation.from_rotvec([0.6, 0.1, -0.2]), np.array([0.01, -0.02, 0.03])
SEGMENTS = [[f"egoexo4d:u:{k:04d}", 0.5 + k, 2.0 + k] for k in range(6)]
POSES, SYNC, CALIBRATION = "poses.csv", "timesync.csv", "online_calibration.jsonl"


def true_pose(t_s: np.ndarray) -> tuple[Rotation, np.ndarray]:
    """Return T_world_device at video times: rotations and positions of a smooth motion."""
    vector = np.stack([0.4 * np.sin(1.3 * t_s), 0.3 * np.cos(0.7 * t_s), 0.5 * np.sin(0.4 * t_s)], axis=1)
    position = np.stack([np.sin(0.5 * t_s), 0.2 * t_s, 0.1 * np.cos(2 * t_s)], axis=1)
    return Rotation.from_rotvec(vector), position


@functools.cache
def pose_lines() -> tuple[bytes, ...]:
    """Return header and rows of a good pose file: uneven clock, from 0.3 s before to 0.3 s after the video."""
    rng = np.random.default_rng(0)
    n = int((DURATION_S + 0.6) * 1e6 / 866)
    stamp = CLOCK_NS // 1000 - LEAD_US + np.cumsum(rng.choice([999, 1000, 954, 1045, 1179, 20], n))
    rotation, position = true_pose((stamp * 1000 - CLOCK_NS) * 1e-9)
    numbers = np.hstack([position, rotation.as_quat()]).tolist()
    rows = [
        ",".join(["map-1", str(us), "-1", *(f"{x:.9f}" for x in values), "1.0", "x" * (us % 7)])
        for us, values in zip(stamp.tolist(), numbers, strict=True)
    ]
    return tuple(line.encode() for line in [",".join(COLUMNS), *rows])


def edited(first: int, last: int, column: str, value: str) -> list[bytes]:
    """Return the good file with one column overwritten in rows first..last-1 (row 0 is the first pose)."""
    lines, at = list(pose_lines()), COLUMNS.index(column)
    for row in range(first + 1, last + 1):
        cells = lines[row].split(b",")
        cells[at] = value.encode()
        lines[row] = b",".join(cells)
    return lines


def row_of(t_s: float) -> int:
    """Return the number of the pose row at a video time, about."""
    us = CLOCK_NS // 1000 + t_s * 1e6
    return int(np.searchsorted([int(line.split(b",")[1]) for line in pose_lines()[1:]], us))


def joined(lines: list[bytes] | tuple[bytes, ...]) -> bytes:
    """Return lines as a file."""
    return b"\n".join(lines) + b"\n"


def timesync_text(cells: dict[int, str] | None = None, first_ns: int = CLOCK_NS) -> str:
    """Return a timesync file with ten rows more than the take has; `cells` overwrites rows of the head camera."""
    rows = {row: str(first_ns + round((row - FIRST_ROW) * 1e9 / FPS)) for row in range(FIRST_ROW + N_FRAMES + 5)}
    rows |= cells or {}
    body = "".join(f"{row},,{cell}\n" for row, cell in rows.items())
    return "cam01_pts,aria02_1201-1_capture_timestamp_ns,aria02_214-1_capture_timestamp_ns\n" + body


def calibration_line(us: int, label: str = "camera-rgb") -> str:
    """Return a line of the calibration file; the quaternion is w first."""
    rotation, translation = T_DEVICE_CAMERA
    x, y, z, w = rotation.as_quat().tolist()
    slam = {
        "Label": "camera-slam-left",
        "T_Device_Camera": {"Translation": [0, 0, 0], "UnitQuaternion": [1, [0, 0, 0]]},
    }
    pose = {"Translation": translation.tolist(), "UnitQuaternion": [w, [x, y, z]]}
    cameras = [slam, {"Label": label, "T_Device_Camera": pose}]
    return json.dumps({"utc_timestamp_ns": -1, "tracking_timestamp_us": us, "CameraCalibrations": cameras}) + "\n"


def good_take(**changes: object) -> Take:
    """Return the record of the take."""
    return Take(
        take_id="egoexo4d:u", corpus="egoexo4d", name="u", split="test", scenario="s", participant=None, capture="c",
        video="v.mp4", trajectory=POSES, timesync=SYNC, calibration=CALIBRATION, camera="aria02_214-1",
        timesync_start=FIRST_ROW - 1, timesync_end=FIRST_ROW + N_FRAMES, duration_s=DURATION_S, fps=FPS,
        n_frames=N_FRAMES,
    ).replace(**changes)  # fmt: skip


def write_take(root: Path, poses: bytes | None = None) -> Take:
    """Write the take's files, with `poses` instead of the good pose file, and return its record."""
    (root / POSES).write_bytes(joined(pose_lines()) if poses is None else poses)
    (root / SYNC).write_text(timesync_text())
    (root / CALIBRATION).write_text("".join(calibration_line(CLOCK_NS // 1000 + k * 100_000) for k in range(80)))
    return good_take()


def compute(
    root: Path, take: Take, cfg: TrajectoryConfig | None = None, segments: list[list[object]] | None = None
) -> Done:
    """Compute one take and check that nothing is lost."""
    (done,) = capture_controls(
        str(root), [(take, SEGMENTS if segments is None else segments)], cfg or TrajectoryConfig()
    )
    assert done.n_in == done.table.num_rows + sum(r.n_units for r in done.rejects)
    return done


def codes(done: Done) -> dict[str | None, str]:
    """Return segment (its last four digits; None for the take) -> code."""
    return {r.segment[-4:] if r.segment else None: r.code.value for r in done.rejects}


def motions(done: Done) -> np.ndarray:
    """Return the (S, 16, 6) controls of a finished take."""
    return np.array(done.table["controls"].to_pylist(), dtype=np.float32).reshape(-1, 16, 6)
