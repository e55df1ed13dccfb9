"""T_device_camera of the RGB camera from MPS `online_calibration.jsonl`.

Format: https://facebookresearch.github.io/projectaria_tools/docs/data_formats/mps/slam/mps_trajectory. One line per
0.1 s; the quaternion is written as [w, [x, y, z]], w first, unlike in the pose file.
"""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.incoming import parse_json
from trajpilot_core.poses.lens import Lens, known_lens
from trajpilot_core.poses.se3 import Poses

RGB_LABEL = "camera-rgb"
STAMP = re.compile(rb'"tracking_timestamp_us"\s*:\s*(-?\d{1,18})\b')


def nearest_extrinsics(content: bytes, times_us: NDArray[np.int64], tolerance: float, path: str) -> Poses:
    """Return T_device_camera at the lines nearest to the given times.

    Lines that are unreadable or lack the camera are ignored; only the chosen lines are parsed.

    Args:
        content: the calibration file.
        times_us: (N,) device times, microseconds.
        tolerance: largest deviation of the quaternion's norm from 1.
        path: the file's name, for the message.

    Returns:
        (N,) poses, the quaternions of unit norm.

    Raises:
        TakeFault: CALIBRATION_MISSING, no line contains the camera.
    """
    lines = {int(match[1]): line for line in content.splitlines() if (match := STAMP.search(line))}
    stamps = np.array(sorted(lines), dtype=np.int64)
    nearest = stamps[_nearest(stamps, times_us)].tolist() if len(stamps) else []
    known = {stamp: extrinsics(lines[stamp], tolerance) for stamp in set(nearest)}
    if None in known.values():
        known = {stamp: extrinsics(line, tolerance) for stamp, line in lines.items()}
        stamps = np.array(sorted(stamp for stamp, pose in known.items() if pose is not None), dtype=np.int64)
        nearest = stamps[_nearest(stamps, times_us)].tolist() if len(stamps) else []
    chosen = [pose for stamp in nearest if (pose := known[stamp]) is not None]
    if len(chosen) != len(times_us):
        detail = f"none of the {len(lines)} lines with a time contains a usable T_Device_Camera of {RGB_LABEL}"
        raise TakeFault(RejectCode.CALIBRATION_MISSING, detail, path)
    return Poses(*(np.array(part).reshape(len(chosen), -1) for part in zip(*chosen, strict=True)))


def _nearest(sorted_stamps: NDArray[np.int64], times_us: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the index of the sorted stamp nearest to each time; of two as near, the earlier one."""
    above = np.clip(np.searchsorted(sorted_stamps, times_us), 1, max(len(sorted_stamps) - 1, 1))
    above = np.minimum(above, len(sorted_stamps) - 1)
    below = np.maximum(above - 1, 0)
    later = sorted_stamps[above] - times_us < times_us - sorted_stamps[below]
    return np.where(later, above, below)


def extrinsics(line: bytes, tolerance: float) -> tuple[Array, Array] | None:
    """Return q_xyzw, shape (4,), and t_m, shape (3,), of the RGB camera in a line; None where it is missing.

    Written as {"Translation": [3], "UnitQuaternion": [w, [x, y, z]]}.
    """
    transform: Any = camera_record(line).get("T_Device_Camera")
    try:
        w, (x, y, z) = transform["UnitQuaternion"]
        q_xyzw, t_m = np.array([x, y, z, w], np.float64), np.array(transform["Translation"], np.float64)
    except (TypeError, ValueError, KeyError):
        return None
    norm = np.linalg.norm(q_xyzw)
    if t_m.shape != (3,) or not np.isfinite(t_m).all() or not abs(norm - 1) <= tolerance:
        return None
    return q_xyzw / norm, t_m


def camera_record(line: bytes) -> dict[str, Any]:
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

    Raises:
        TakeFault: CALIBRATION_MISSING, no line does.
    """
    lines = content.splitlines()
    for line in lines:
        lens = known_lens(camera_record(line).get("Projection"))
        if lens is not None:
            return lens
    known = f"none of the {len(lines)} lines contains a known projection of {RGB_LABEL}"
    detail = f"{known}; odometry.intrinsics can be set to assumed"
    raise TakeFault(RejectCode.CALIBRATION_MISSING, detail, path)
