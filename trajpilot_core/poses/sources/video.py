"""Shared part of the pose sources that read video: from camera poses to motions, one shard per take.

Poses have upright OpenCV axes (x right, y down, z ahead), camera to an arbitrary world, at the times of their frames.
The 17 knots are between the times of the first and the last frame (D 20): nothing is extrapolated. Reasons:
docs/decisions/poses.md.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from schemas.annotation import DOF, KNOTS, MOTIONS, Take
from schemas.poses import TrajectoryConfig, VideoSourceName
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.arrays import Array
from trajpilot_core.poses import geometry
from trajpilot_core.poses.geometry import UPRIGHT_FROM_RAW, PoseFault, Poses
from trajpilot_core.poses.motions import Rows, motions_table, relative_motions, scaled
from trajpilot_core.poses.sources.base import STAGE_NAME, Done, SegmentIntervals, TakeJob, intervals

if TYPE_CHECKING:
    from trajpilot_core.engine.stage import Runtime

DECODER = (sys.executable, "-P", "-m", "trajpilot_core.poses.sources.child")
"""Command that starts a decoder process of the pose sources."""
ROTATION_ERROR = 1e-3
"""Largest deviation of R R^T from the identity that counts as rounding."""


class EstimatedPoses(NamedTuple):
    """Poses of T frames of one segment."""

    pts_s: Array
    """(T,) times of the frames, rising."""
    T_clip_camera: Array
    """(T, 4, 4), upright axes."""
    quality: float


class SegmentMotions(NamedTuple):
    """Motions of one segment."""

    motions: Array
    """(16, 6)."""
    coverage: float
    quality: float
    gap_s: float


@dataclass
class TakeProgress:
    """The state of one take while its segments arrive."""

    take: Take
    segments: SegmentIntervals
    results: dict[int, SegmentMotions | PoseFault] = field(default_factory=dict)
    """Place of a segment -> its motions, or why there are none."""
    failed: PoseFault | None = None
    """Set where the whole take cannot be used."""


Estimator = Callable[[Mapping[str, Any], NDArray[np.uint8] | None], EstimatedPoses | PoseFault]
"""Event of a decoder process on a segment -> its poses."""


def video_motions(
    name: VideoSourceName,
    jobs: Sequence[TakeJob],
    describe: Callable[[Take, SegmentIntervals], dict[str, Any] | PoseFault],
    estimate: Estimator,
    cfg: TrajectoryConfig,
    runtime: "Runtime",
    timeout_s: float,
) -> Iterator[Done]:
    """Compute takes from their videos: decoder processes run the jobs of `describe`, `estimate` does the rest here.

    Args:
        describe: the job of a decoder process for a take, or why there is none.
        timeout_s: a decoder that is silent for longer is killed.
    """
    from trajpilot_core.store.corpus_files import open_corpus
    from trajpilot_core.video.isolate import local_copies, run_jobs

    states = [TakeProgress(take, intervals(segments)) for take, segments in jobs]
    described = [describe(state.take, state.segments) if state.segments.ids else None for state in states]
    for state, job in zip(states, described, strict=True):
        if not isinstance(job, dict):
            state.failed = job
            yield _done(name, state, cfg)
    busy = [(state, job) for state, job in zip(states, described, strict=True) if isinstance(job, dict)]
    around = local_copies(open_corpus(runtime.data_root), runtime.scratch)
    work = [{"path": state.take.video, "video": state.take.video, **job} for state, job in busy]
    events = run_jobs(work, workers=runtime.workers, timeout_s=timeout_s, ahead=4, around=around, command=DECODER)
    finished = 0
    for event in events:
        state = busy[event.job][0]
        if event.kind in ("done", "failed"):
            if event.kind == "failed":
                state.failed = PoseFault(RejectCode(event.values["code"]), event.values["detail"])
            finished += 1
            runtime.progress(finished, len(busy), "takes")
            yield _done(name, state, cfg)
            continue
        at = event.values["segment"]
        result: EstimatedPoses | SegmentMotions | PoseFault
        if event.kind == "fault":
            result = PoseFault(RejectCode(event.values["code"]), event.values["detail"])
        else:
            result = estimate(event.values, event.frames)
        if isinstance(result, EstimatedPoses):
            result = to_motions(name, result, float(state.segments.end_s[at] - state.segments.start_s[at]), cfg)
        state.results[at] = result


def _done(name: VideoSourceName, state: TakeProgress, cfg: TrajectoryConfig) -> Done:
    """Return the shard of a take."""
    ids, take = state.segments.ids, state.take
    missing = PoseFault(RejectCode.DECODE_FAILED, "the decoder reported nothing for the segment")
    results = [(segment, state.results.get(at, missing)) for at, segment in enumerate(ids)]
    rejects = [_reject(take, result, segment) for segment, result in results if isinstance(result, PoseFault)]
    if state.failed is not None:
        results, rejects = [], [_reject(take, state.failed, None, len(ids))]
    kept = [(segment, row) for segment, row in results if isinstance(row, SegmentMotions)]
    rows = Rows(
        [segment for segment, _ in kept],
        np.array([row.motions for _, row in kept]).reshape(len(kept), MOTIONS, DOF),
        *(np.array([getattr(row, what) for _, row in kept], dtype=float) for what in ("coverage", "quality", "gap_s")),
    )
    return Done(take.take_id, motions_table(take.take_id, rows, name, scale_of(name, cfg), cfg), rejects, len(ids))


def _reject(take: Take, fault: PoseFault, segment: str | None, n_units: int = 1) -> Reject:
    return reject(
        STAGE_NAME, fault.code, take.take_id, fault.detail, segment=segment, n_units=n_units, source_file=take.video
    )


def scale_of(name: VideoSourceName, cfg: TrajectoryConfig) -> Any:
    """Return the value of the column `scale`: only unscaled Pi3X has lengths in approximate metres."""
    metric = name == "pi3" and cfg.pi3.model == "pi3x" and cfg.scale_rule(name) == "raw" and cfg.scale_factor is None
    return "metric" if metric else "arbitrary"


def to_motions(
    name: VideoSourceName, estimated: EstimatedPoses, length_s: float, cfg: TrajectoryConfig
) -> SegmentMotions | PoseFault:
    """Turn the poses of a segment's frames into 16 motions between 17 knots, at equal times from first to last frame.

    Poses that are too few, not finite, or no rotations are a fault. The source decides the scale rule; `length_s` is
    the duration of the segment.
    """
    pts_s, R = estimated.pts_s, estimated.T_clip_camera[:, :3, :3]
    if len(pts_s) < 2:
        return PoseFault(RejectCode.POSES_TOO_SHORT, f"{len(pts_s)} different frames, two are needed")
    if not np.isfinite(estimated.T_clip_camera).all() or not np.isfinite(estimated.quality):
        return PoseFault(RejectCode.TRAJ_NOT_FINITE, "an estimated pose contains NaN or infinity")
    off = float(np.abs(R @ R.transpose(0, 2, 1) - np.eye(3)).max())
    if off > ROTATION_ERROR or (np.linalg.det(R) < 0).any():
        return PoseFault(RejectCode.TRAJ_QUATERNION, f"an estimated rotation is none: R R^T is off by {off:.3g}")
    if name == "odometry" and estimated.quality < cfg.min_quality:
        detail = f"the poses explain {estimated.quality:.0%} of the observations, min_quality is {cfg.min_quality:g}"
        return PoseFault(RejectCode.TRAJ_LOW_QUALITY, detail)
    turned = Rotation.from_matrix(R @ UPRIGHT_FROM_RAW if cfg.frame == "camera" else R)  # the axes of the frame
    poses = Poses(turned.as_quat(), estimated.T_clip_camera[:, :3, 3])
    times_s = np.linspace(pts_s[0], pts_s[-1], KNOTS)
    high = np.clip(np.searchsorted(pts_s, times_s, side="right"), 1, len(pts_s) - 1)
    share = np.clip((times_s - pts_s[high - 1]) / (pts_s[high] - pts_s[high - 1]), 0.0, 1.0)
    knots = geometry.interpolate(geometry.take(poses, high - 1), geometry.take(poses, high), share)
    motions = relative_motions(knots, 1)[0]
    motions[:, :3] = scaled(motions[:, :3], cfg.scale_rule(name), cfg.scale_factor)
    coverage, gap_s = min(1.0, float(pts_s[-1] - pts_s[0]) / length_s), float(np.diff(pts_s).max())
    return SegmentMotions(motions, coverage, estimated.quality, gap_s)
