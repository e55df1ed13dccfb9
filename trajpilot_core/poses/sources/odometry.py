"""Visual odometry as a pose source, computed in the decoder processes, one take each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.annotation import Take
from schemas.poses import OdometryConfig, TrajectoryConfig
from schemas.rejects import RejectCode
from trajpilot_core.corpora.records.videos import video_of
from trajpilot_core.errors import TakeFault
from trajpilot_core.poses.sources.base import Done, TakeJob

if TYPE_CHECKING:
    from trajpilot_core.arrays import Array
    from trajpilot_core.engine.stage import Runtime
    from trajpilot_core.poses.geometry import PoseFault
    from trajpilot_core.poses.sources.base import SegmentIntervals
    from trajpilot_core.poses.sources.video import EstimatedPoses

VERSION = 2
"""Raise when the poses change; part of the facts of every take, so that other sources keep their keys."""


def files(take: Take, cfg: TrajectoryConfig) -> tuple[str, ...]:
    """Return the video, and the calibration of its lens if there is one."""
    calibration = _calibration(take, cfg.odometry)
    video = video_of(take, "the pose source odometry")
    return (video,) if calibration is None else (video, calibration)


def facts(take: Take, cfg: TrajectoryConfig) -> Mapping[str, JsonValue]:
    """Return the source's name and version, the frame rate, and whether the lens is known."""
    known = _calibration(take, cfg.odometry) is not None
    return {"source": "odometry", "version": VERSION, "fps": take.fps, "calibrated": known}


def motions(jobs: Sequence[TakeJob], cfg: TrajectoryConfig, runtime: "Runtime") -> Iterator[Done]:
    """Compute takes side by side in `runtime.workers` processes."""
    from trajpilot_core.poses.aria.device import lens_of
    from trajpilot_core.poses.files import read_bytes
    from trajpilot_core.poses.geometry import PoseFault, assumed_lens
    from trajpilot_core.poses.sources.video import EstimatedPoses, video_motions

    def describe(take: Take, segments: "SegmentIntervals") -> "dict[str, Any] | PoseFault":
        path, lens = _calibration(take, cfg.odometry), assumed_lens(cfg.odometry.view_deg)
        try:
            if path is not None:
                lens = lens_of(read_bytes(runtime.data_root, path, RejectCode.CALIBRATION_MISSING), path)
        except TakeFault as fault:
            return PoseFault(fault.code, fault.detail)
        times_s = frame_times_s(segments.start_s, segments.end_s, take.fps, cfg.odometry)
        return {
            "kind": "odometry",
            "times_s": times_s.tolist(),
            "lens": list(lens),
            "config": cfg.odometry.model_dump(mode="json"),
        }

    def reported(values: Mapping[str, Any], frames: NDArray[np.uint8] | None) -> "EstimatedPoses | PoseFault":
        """Read the poses that a decoder process estimated."""
        return EstimatedPoses(np.array(values["pts_s"]), np.array(values["poses"]), float(values["quality"]))

    yield from video_motions("odometry", jobs, describe, reported, cfg, runtime, cfg.odometry.decode_timeout_s)


def _calibration(take: Take, cfg: OdometryConfig) -> str | None:
    return take.calibration if cfg.intrinsics == "calibration" else None


def frame_times_s(start_s: "Array", end_s: "Array", fps: float, cfg: OdometryConfig) -> "Array":
    """Return (S, N) times of the frames to track in (S,) segments, at most those of the video; short rows padded."""
    last_s = np.maximum(start_s, end_s - 1.0 / fps)
    wanted = np.ceil((last_s - start_s) * min(cfg.rate_hz, fps) - 1e-6).astype(int) + 1
    counts = np.clip(wanted, 1, cfg.max_frames)
    rows = [np.linspace(a, b, n) for a, b, n in zip(start_s, last_s, counts.tolist(), strict=True)]
    return np.array([np.pad(row, (0, int(counts.max()) - len(row)), mode="edge") for row in rows])
