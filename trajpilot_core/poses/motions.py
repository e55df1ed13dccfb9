"""Pose stream -> 17 poses over each segment -> 16 relative motions, as rows; doubtful segments become rejects.

Shapes: S segments, K = 17 knots at equal times over [start_s, end_s], 16 motions of 6 numbers. All segments of a take
are resampled in one call. Paper, appendix on preprocessing; docs/decisions/gaps.md and docs/decisions/frames.md.
"""

from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from schemas.annotation import DOF, KNOTS, MOTIONS, HeadMotions, motions_schema
from schemas.poses import PoseSourceName, TrajectoryConfig
from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array
from trajpilot_core.poses import geometry
from trajpilot_core.poses.aria.closed_loop import PoseStream
from trajpilot_core.poses.geometry import Poses

MICROSECONDS = 1_000_000
STILL = 1e-9
"""Root mean square step below which a clip counts as still and is not scaled."""


class Brackets(NamedTuple):
    """The two rows around each knot. All (S, K)."""

    low: NDArray[np.intp]
    high: NDArray[np.intp]
    covered: NDArray[np.bool_]
    """False: the knot is before the first or after the last row; low and high are then meaningless."""
    gap_us: NDArray[np.int64]
    fraction: Array
    """Position of the knot between its rows, 0 to 1."""


class Measures(NamedTuple):
    """The quantities that are checked, per segment. All (S,)."""

    unreadable: Array
    """Share of the rows around the knots that lack a field."""
    not_finite: Array
    """Share of them with NaN or infinity."""
    one_map: NDArray[np.bool_]
    """Whether they are all from one map (one `graph_uid`, one world frame)."""
    gap_s: Array
    """Longest time between the two rows around a knot."""
    hole_s: Array
    """Longest time between neighbouring rows of the stream from the first knot to the last."""
    quality: Array
    """Lowest tracking quality around the knots."""
    norm_error: Array
    """Largest deviation of a quaternion's norm from 1 around the knots."""


def knot_times_s(start_s: Array, end_s: Array) -> Array:
    """Return the (S, 17) knot times, seconds of video, of (S,) segments; first and last knot are the bounds."""
    return start_s[:, None] + (end_s - start_s)[:, None] * np.linspace(0.0, 1.0, KNOTS)


def bracket(stream: PoseStream, knots_ns: NDArray[np.int64]) -> Brackets:
    """Find the rows around (S, K) knots, device nanoseconds, such that low <= knot < high (or knot = last row)."""
    stamp_ns, n = stream.stamp_us * 1000, len(stream.stamp_us)
    high = np.clip(np.searchsorted(stamp_ns, knots_ns, side="right"), 1, max(n - 1, 1))
    if n < 2:
        shape = knots_ns.shape
        return Brackets(high * 0, high * 0, np.zeros(shape, bool), np.zeros(shape, np.int64), np.zeros(shape))
    low = high - 1
    gap_ns = stamp_ns[high] - stamp_ns[low]
    fraction = np.clip((knots_ns - stamp_ns[low]) / np.maximum(gap_ns, 1), 0.0, 1.0)
    covered = (knots_ns >= stamp_ns[0]) & (knots_ns <= stamp_ns[-1])
    return Brackets(low, high, covered, gap_ns // 1000, fraction)


def part(brackets: Brackets, segments: NDArray[np.intp]) -> Brackets:
    """Return the (N, K) brackets of the N segments at positions `segments`, shape (N,)."""
    return Brackets._make(column[segments] for column in brackets)


def sample(stream: PoseStream, brackets: Brackets) -> Poses:
    """Interpolate the device poses at all knots at once: (S * K,) T_world_device, lerp and slerp.

    Only for knots whose rows passed `find_fault`.
    """
    low, high = brackets.low.ravel(), brackets.high.ravel()
    poses = stream.T_world_device
    return geometry.interpolate(geometry.take(poses, low), geometry.take(poses, high), brackets.fraction.ravel())


def relative_motions(T_world_body: Poses, n_segments: int) -> Array:
    """Return the (S, 16, 6) motions T_k^-1 T_k+1 of (S * 17,) poses: dx, dy, dz m, rotation vector rad."""
    index = np.arange(n_segments * KNOTS).reshape(n_segments, KNOTS)
    earlier, later = (geometry.take(T_world_body, rows.ravel()) for rows in (index[:, :-1], index[:, 1:]))
    motion = geometry.compose(geometry.invert(earlier), later)
    turn_rad = Rotation.from_quat(motion.q_xyzw).as_rotvec()  # of an angle in [0, pi]
    return np.hstack([motion.t_m, turn_rad]).reshape(n_segments, MOTIONS, DOF)


def measure(stream: PoseStream, brackets: Brackets) -> Measures:
    """Measure the rows around the knots of every segment, and the holes in all rows between its first and last knot."""
    rows = np.concatenate([brackets.low, brackets.high], axis=1)
    poses, graph = stream.T_world_device, stream.graph[rows]
    finite = np.isfinite(poses.t_m[rows]).all(axis=2) & np.isfinite(poses.q_xyzw[rows]).all(axis=2)
    norm_error = np.abs(np.linalg.norm(poses.q_xyzw[rows], axis=2) - 1)
    spans = zip(brackets.low[:, 0].tolist(), brackets.high[:, -1].tolist(), strict=True)
    hole_us = [np.diff(stream.stamp_us[low : high + 1]).max(initial=0) for low, high in spans]
    return Measures(
        unreadable=(~stream.readable[rows]).mean(axis=1),
        not_finite=(~(finite & np.isfinite(stream.quality[rows]))).mean(axis=1),
        one_map=graph.min(axis=1) == graph.max(axis=1),
        gap_s=brackets.gap_us.max(axis=1) / MICROSECONDS,
        hole_s=np.array(hole_us) / MICROSECONDS,
        quality=stream.quality[rows].min(axis=1),
        norm_error=norm_error.max(axis=1),
    )


def find_fault(measures: Measures, cfg: TrajectoryConfig, at: int) -> tuple[RejectCode, str] | None:
    """Return the first reason why segment number `at`, with all knots covered, cannot be used, or None."""
    unreadable, not_finite, one_map, gap_s, hole_s, quality, norm_error = (column[at].item() for column in measures)
    if unreadable > 0:
        return RejectCode.TRAJ_MALFORMED, f"{unreadable:.0%} of the rows used lack a field or a number"
    if not_finite > 0:
        return RejectCode.TRAJ_NOT_FINITE, f"{not_finite:.0%} of the rows used contain NaN or infinity"
    if not one_map:
        return RejectCode.TRAJ_FRAME_CHANGE, "the rows used are from more than one map (graph_uid)"
    if gap_s > cfg.max_bracket_gap_s:
        limit = f"max_bracket_gap_s is {cfg.max_bracket_gap_s:.3f}"
        return RejectCode.TRAJ_GAP, f"{gap_s:.3f} s between the two poses around a knot, {limit}"
    if round(hole_s * MICROSECONDS) > inner_gap_us(cfg):
        return RejectCode.TRAJ_GAP, f"no pose for {hole_s:.3f} s, max_inner_gap_s is {cfg.max_inner_gap_s:.3f}"
    if quality < cfg.min_quality:
        detail = f"the lowest quality_score is {quality:g}, min_quality is {cfg.min_quality:g}"
        return RejectCode.TRAJ_LOW_QUALITY, detail
    if norm_error > cfg.quaternion_tolerance:
        limit = f"quaternion_tolerance is {cfg.quaternion_tolerance:g}"
        return RejectCode.TRAJ_QUATERNION, f"the norm of a quaternion is off by {norm_error:.3g}, {limit}"
    return None


def inner_gap_us(cfg: TrajectoryConfig) -> int:
    """Return the longest hole allowed inside a segment, whole microseconds."""
    return round(cfg.max_inner_gap_s * MICROSECONDS)


def scaled(steps: Array, rule: str, factor: float | None) -> Array:
    """Apply the scale rule to the (16, 3) translations of a clip; a still clip becomes zero."""
    rms = step_rms(steps) if rule == "rms" else 1.0
    result: Array = steps * ((1.0 if factor is None else factor) / rms) if rms > STILL else np.zeros_like(steps)
    return result


def step_rms(steps: Array) -> float:
    """Return the root mean square length of (16, 3) translations."""
    return float(np.sqrt(np.sum(steps**2, axis=-1).mean()))


def median_step_m(motions_S: Array) -> float:
    """Return the median of the clips' root mean square steps of (S, 16, 6) motions: the unit of their lengths."""
    return float(np.median([step_rms(clip[:, :3]) for clip in motions_S.astype(np.float64)]))


def rms_scaled(motions_S: Array, step_m: float) -> Array:
    """Return (S, 16, 6) motions, each clip scaled to the root mean square step `step_m` (D 20)."""
    clips = motions_S.astype(np.float64).reshape(-1, MOTIONS, DOF).copy()
    for clip in clips:
        clip[:, :3] = scaled(clip[:, :3], "rms", step_m)
    return clips


class Rows(NamedTuple):
    """The N usable segments of a take."""

    ids: list[str]
    motions: Array
    """(N, 16, 6)."""
    coverage: Array
    quality: Array
    gap_s: Array
    """(N,) each."""


def motions_table(
    take_id: str, rows: Rows, source: PoseSourceName, scale: Literal["metric", "arbitrary"], cfg: TrajectoryConfig
) -> pa.Table:
    """Build the motions of one take, all from one source."""
    n = len(rows.ids)
    flat = pa.array(rows.motions.astype(np.float32).reshape(-1), type=pa.float32())
    columns = {
        "segment_id": rows.ids,
        "take_id": [take_id] * n,
        "source": [source] * n,
        "frame": [cfg.frame] * n,
        "scale": [scale] * n,
        "coverage": rows.coverage,
        "quality": rows.quality,
        "max_gap_s": rows.gap_s,
        "motions": pa.FixedSizeListArray.from_arrays(flat, MOTIONS * DOF),
    }
    assert set(columns) == {*HeadMotions.model_fields, "motions"}
    return pa.table(columns, schema=motions_schema())
