"""Video time -> device clock (`timesync.csv` of the capture), T_device_camera (MPS `online_calibration.jsonl`).

Clock: https://docs.ego-exo4d-data.org/data/takes/ . One row per synchronised frame of the whole capture; the column
`<camera>_capture_timestamp_ns` is the Aria device clock, the clock of the poses. A take is a range of rows, and the row
of its first frame follows from the number of frames in its video (docs/decisions/frames.md).

Calibration: https://facebookresearch.github.io/projectaria_tools/docs/data_formats/mps/slam/mps_trajectory. One line
per 0.1 s; the quaternion is written as [w, [x, y, z]], w first, unlike in the pose file.
"""

import io
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.annotation import Take
from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.incoming import parse_json
from trajpilot_core.poses.files import read_bytes
from trajpilot_core.poses.geometry import Lens, Poses, known_lens

RGB_LABEL = "camera-rgb"
STAMP = re.compile(rb'"tracking_timestamp_us"\s*:\s*(-?\d{1,18})\b')


def nearest_extrinsics(content: bytes, times_us: NDArray[np.int64], tolerance: float, path: str) -> Poses:
    """Return T_device_camera at the lines nearest to the given times.

    Lines that are unreadable or lack the camera are ignored; of two lines as near, the earlier one is used.

    Args:
        content: the calibration file, `path` for messages.
        times_us: (N,) device times, microseconds.
        tolerance: largest deviation of the quaternion's norm from 1.

    Returns:
        (N,) poses, the quaternions of unit norm.

    Raises TakeFault: CALIBRATION_MISSING, no line contains the camera.
    """
    lines = {int(match[1]): line for line in content.splitlines() if (match := STAMP.search(line))}
    known = {stamp: pose for stamp, line in lines.items() if (pose := _extrinsics(line, tolerance)) is not None}
    if not known:
        detail = f"none of the {len(lines)} lines with a time contains a usable T_Device_Camera of {RGB_LABEL}"
        raise TakeFault(RejectCode.CALIBRATION_MISSING, detail, path)
    stamps = np.array(sorted(known), dtype=np.int64)
    above = np.clip(np.searchsorted(stamps, times_us), min(1, len(stamps) - 1), len(stamps) - 1)
    below = np.maximum(above - 1, 0)
    later = stamps[above] - times_us < times_us - stamps[below]
    chosen = [known[stamp] for stamp in stamps[np.where(later, above, below)].tolist()]
    return Poses(*(np.array(part).reshape(len(chosen), -1) for part in zip(*chosen, strict=True)))


def _extrinsics(line: bytes, tolerance: float) -> tuple[Array, Array] | None:
    """Return q_xyzw, shape (4,), and t_m, shape (3,), of the RGB camera in a line; None where it is missing.

    Written as {"Translation": [3], "UnitQuaternion": [w, [x, y, z]]}.
    """
    transform: Any = _camera_record(line).get("T_Device_Camera")
    try:
        w, (x, y, z) = transform["UnitQuaternion"]
        q_xyzw, t_m = np.array([x, y, z, w], np.float64), np.array(transform["Translation"], np.float64)
    except (TypeError, ValueError, KeyError):
        return None
    norm = np.linalg.norm(q_xyzw)
    if t_m.shape != (3,) or not np.isfinite(t_m).all() or not abs(norm - 1) <= tolerance:
        return None
    return q_xyzw / norm, t_m


def _camera_record(line: bytes) -> dict[str, Any]:
    """Return the record of the RGB camera in a line; empty where there is none."""
    try:
        record: Any = parse_json(line, "a line of the calibration")
    except InputError:
        return {}
    cameras = record.get("CameraCalibrations") if isinstance(record, dict) else None
    for camera in cameras if isinstance(cameras, list) else []:
        if isinstance(camera, dict) and camera.get("Label") == RGB_LABEL:
            return camera
    return {}


def lens_of(content: bytes, path: str) -> Lens:
    """Return the lens of the RGB camera, from the first line with a known projection.

    Raises TakeFault: CALIBRATION_MISSING, no line does.
    """
    lines = content.splitlines()
    for line in lines:
        lens = known_lens(_camera_record(line).get("Projection"))
        if lens is not None:
            return lens
    known = f"none of the {len(lines)} lines contains a known projection of {RGB_LABEL}"
    detail = f"{known}; odometry.intrinsics can be set to assumed"
    raise TakeFault(RejectCode.CALIBRATION_MISSING, detail, path)


@dataclass(frozen=True)
class Clock:
    """When the frames of one take were captured."""

    frame: NDArray[np.int64]
    """(F,) frames that have a device time, rising; frame 0 is the first of the video."""
    ns: NDArray[np.int64]
    """(F,) their device times, rising."""
    fps: float


def capture_column(camera: str) -> str:
    """Return the name of the column that holds the device clock of a camera such as `aria01_214-1`."""
    return f"{camera}_capture_timestamp_ns"


def read_column(data_root: str, path: str, camera: str) -> pl.Series:
    """Read one camera's device times of a whole capture, (rows,) Int64 nanoseconds, null where the cell has none.

    Integers are not read as float64, which near 1e18 is exact to 128 ns only.

    Raises TakeFault: TIMESYNC_MISSING, no file, or not a table with that column.
    """
    content, column = read_bytes(data_root, path, RejectCode.TIMESYNC_MISSING), capture_column(camera)
    try:
        texts = pl.read_csv(io.BytesIO(content), columns=[column], infer_schema=False, truncate_ragged_lines=True)
    except pl.exceptions.PolarsError as error:
        detail = f"no column {column}: {str(error).splitlines()[0]}"
        raise TakeFault(RejectCode.TIMESYNC_MISSING, detail, path) from error
    text = pl.col(column).str.strip_chars()
    number = text.cast(pl.Float64, strict=False)
    exact = pl.when(number.abs() < 2.0**53).then(number.fill_nan(None).round())
    return texts.select(pl.coalesce(text.cast(pl.Int64, strict=False), exact.cast(pl.Int64))).to_series()


def take_clock(column: pl.Series, take: Take, path: str) -> Clock:
    """Return the clock of a take from the device times of its capture.

    Raises:
        TakeFault: TIMESYNC_MISSING without indices, TIMESYNC_MISMATCH where indices, rows and frames disagree or the
            device times do not rise.
    """
    if take.timesync_start is None or take.timesync_end is None:
        raise TakeFault(RejectCode.TIMESYNC_MISSING, "takes.json has no timesync_start_idx and timesync_end_idx")
    n_rows = take.timesync_end - take.timesync_start
    if take.n_frames not in (n_rows, n_rows - 1) or take.timesync_start < 0 or take.n_frames < 1:
        detail = (
            f"the video has {take.n_frames} frames, timesync_start_idx {take.timesync_start} and timesync_end_idx "
            f"{take.timesync_end} allow {n_rows - 1} or {n_rows}"
        )
        raise TakeFault(RejectCode.TIMESYNC_MISMATCH, detail, path)
    first = take.timesync_start + (1 if take.n_frames == n_rows - 1 else 0)
    if first + take.n_frames > len(column):
        detail = f"the take needs rows {first} to {first + take.n_frames - 1}, the file has {len(column)}"
        raise TakeFault(RejectCode.TIMESYNC_MISMATCH, detail, path)
    # one row more than frames: the end of the last frame, where the capture goes on
    stretch = column.slice(first, take.n_frames + 1)
    frame = stretch.is_not_null().arg_true().cast(pl.Int64).to_numpy()
    ns = stretch.drop_nulls().to_numpy()
    if len(frame) < 2:
        detail = f"{len(frame)} of the take's {take.n_frames} frames have a device time"
        raise TakeFault(RejectCode.TIMESYNC_MISMATCH, detail, path)
    stands = np.diff(ns) <= 0
    if stands.any():
        detail = f"the device time does not increase after frame {frame[stands.argmax()]}"
        raise TakeFault(RejectCode.TIMESYNC_MISMATCH, detail, path)
    return Clock(frame, ns, take.fps)


def device_times(
    clock: Clock, times_s: NDArray[np.float64], max_hole_s: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Map video times to the device clock, linearly between frames.

    The clock continues for one frame after the last one with a time, the duration of that frame; poses are never
    extrapolated.

    Args:
        times_s: seconds from the start of the video, any shape, e.g. (S, K) knots.
        max_hole_s: longest run of frames without a device time that is bridged.

    Returns:
        Device times, nanoseconds, and whether each is known, both of the shape of `times_s`.
    """
    frame = times_s * clock.fps
    above = np.clip(np.searchsorted(clock.frame, frame, side="right"), 1, len(clock.frame) - 1)
    low, high = clock.frame[above - 1], clock.frame[above]
    share = np.nan_to_num((frame - low) / (high - low))
    step_ns = clock.ns[above] - clock.ns[above - 1]
    known = (
        (high - low <= max(1.0, max_hole_s * clock.fps + 1e-6))
        & (frame >= low - 1e-6)
        & (frame <= clock.frame[-1] + 1 + 1e-6)
    )
    return clock.ns[above - 1] + np.rint(share * step_ns).astype(np.int64), known
