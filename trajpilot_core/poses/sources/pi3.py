"""Pi3 as a pose source: decoder processes read 16 frames of each segment, the model here estimates their poses."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.annotation import Take
from schemas.poses import Pi3Config, TrajectoryConfig
from schemas.rejects import RejectCode
from trajpilot_core.corpora.records.videos import video_of
from trajpilot_core.poses.sources.base import Done, TakeJob

if TYPE_CHECKING:
    from trajpilot_core.engine.stage import Runtime
    from trajpilot_core.poses.geometry import PoseFault
    from trajpilot_core.poses.sources.base import SegmentIntervals
    from trajpilot_core.poses.sources.video import EstimatedPoses

log = logging.getLogger("trajpilot")
VERSION = 1
"""Raise when the poses change; part of the facts of every take, so that other sources keep their keys."""
N_FRAMES = 16
"""Source: paper, appendix on PI3 preprocessing."""
WEIGHTS_FILE = "model.safetensors"
HUBS = {"pi3": "yyfz233/Pi3", "pi3x": "yyfz233/Pi3X"}
"""Name -> repository of the authors' weights."""
INSTALL = 'pip install "trajpilot[pi3]" (in a checkout: pip install -e ".[pi3]")'


def local_weights(cfg: Pi3Config) -> Path | None:
    """Return the full path of the weights; None: they are not set."""
    if cfg.weights is None:
        return None
    path = Path(cfg.weights).absolute()
    return path if path.suffix == ".safetensors" else path / WEIGHTS_FILE


def files(take: Take, cfg: TrajectoryConfig) -> tuple[str, ...]:
    """Return the video and the weights."""
    local = local_weights(cfg.pi3)
    video = video_of(take, "the pose source pi3")
    return (video,) if local is None else (video, str(local))


def facts(take: Take, cfg: TrajectoryConfig) -> Mapping[str, JsonValue]:
    """Return the source's name and version, and the frame rate."""
    return {"source": "pi3", "version": VERSION, "fps": take.fps}


def motions(jobs: Sequence[TakeJob], cfg: TrajectoryConfig, runtime: "Runtime") -> Iterator[Done]:
    """Compute takes: decoding in `runtime.workers` processes, the model on `runtime.device`.

    Raises:
        InputError: the package or the weights are missing, or a clip does not fit into memory.
        CheckpointError: the weights are damaged or of another model.
    """
    from trajpilot_core.poses.geometry import PoseFault
    from trajpilot_core.poses.sources.pi3_model import load_pi3
    from trajpilot_core.poses.sources.video import EstimatedPoses, video_motions
    from trajpilot_core.video.decode import frame_times_s

    model = load_pi3(cfg.pi3, runtime.device)
    if runtime.device == "cpu":
        log.warning("trajectories: Pi3 runs on the CPU, which is slow; use a GPU or odometry")

    def describe(take: Take, segments: "SegmentIntervals") -> dict[str, Any]:
        spans = zip(segments.start_s.tolist(), segments.end_s.tolist(), strict=True)
        times_s = [frame_times_s(start_s, end_s, take.fps, N_FRAMES).tolist() for start_s, end_s in spans]
        return {"kind": "views", "times_s": times_s, "pixel_limit": cfg.pi3.pixel_limit}

    def estimate(values: Mapping[str, Any], frames: NDArray[np.uint8] | None) -> "EstimatedPoses | PoseFault":
        assert frames is not None
        if len(frames) < 2:
            return PoseFault(RejectCode.POSES_TOO_SHORT, f"{len(frames)} different frames, two are needed")
        T_world_camera, confidence = model.poses(frames)
        return EstimatedPoses(np.array(values["pts_s"]), T_world_camera, confidence)

    for done in video_motions("pi3", jobs, describe, estimate, cfg, runtime, cfg.pi3.decode_timeout_s):
        known = done.table.schema.metadata or {}
        yield done._replace(table=done.table.replace_schema_metadata({**known, "weights": model.digest}))
