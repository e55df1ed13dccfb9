"""All motions of one take: clock, calibration, poses, checks; unusable segments become rejects."""

from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from schemas.annotation import Take, motions_schema
from schemas.poses import TrajectoryConfig
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.errors import TakeFault
from trajpilot_core.poses import geometry
from trajpilot_core.poses.aria import closed_loop, device
from trajpilot_core.poses.aria.closed_loop import PoseStream
from trajpilot_core.poses.aria.device import Clock
from trajpilot_core.poses.files import read_bytes
from trajpilot_core.poses.geometry import UPRIGHT_FROM_RAW, Poses
from trajpilot_core.poses.motions import (
    Brackets,
    Measures,
    Rows,
    bracket,
    find_fault,
    inner_gap_us,
    knot_times_s,
    measure,
    motions_table,
    part,
    relative_motions,
    sample,
)
from trajpilot_core.poses.sources.base import STAGE_NAME, Done, SegmentIntervals, TakeJob, intervals

NS_PER_S = 1e9
RAW_UPRIGHT = Poses(Rotation.from_matrix(UPRIGHT_FROM_RAW.T).as_quat()[None], np.zeros((1, 3)))
"""T_camera_upright: the upright axes (x right, y down, z ahead) in the raw camera's (x down, y left, z ahead)."""


class KnotReading(NamedTuple):
    """The data read for the knots of S segments, K knots each."""

    clock: Clock
    knots_ns: NDArray[np.int64]
    """(S, K) device times."""
    known: NDArray[np.bool_]
    """(S, K) False: the timesync file has no device time for the knot."""
    stream: PoseStream
    brackets: Brackets
    measures: Measures


def capture_motions(data_root: str, jobs: Iterable[TakeJob], cfg: TrajectoryConfig) -> Iterator[Done]:
    """Compute takes in order; a fault of a take as a whole costs all its segments.

    A timesync file that the next take needs too is not read again.
    """
    column = lru_cache(maxsize=1)(partial(device.read_column, data_root))
    for take, listed in jobs:
        segments = intervals(listed)
        table, rejects, n_in = motions_schema().empty_table(), list[Reject](), len(segments.ids)
        try:
            if segments.ids:
                if take.timesync is None:
                    raise TakeFault(RejectCode.TIMESYNC_MISSING, "the take has no timesync file")
                clock = device.take_clock(column(take.timesync, take.camera), take, take.timesync)
                table, rejects = _segment_motions(data_root, take, clock, segments, cfg)
        except TakeFault as lost:
            code, file = lost.code, lost.source_file
            rejects = [reject(STAGE_NAME, code, take.take_id, lost.detail, n_units=n_in, source_file=file)]
        yield Done(take.take_id, table, rejects, n_in)


def _segment_motions(
    data_root: str, take: Take, clock: Clock, segments: SegmentIntervals, cfg: TrajectoryConfig
) -> tuple[pa.Table, list[Reject]]:
    """Compute the segments of one take; a fault of a segment costs that segment.

    Raises TakeFault: the pose file or the calibration cannot be used.
    """
    knots_s = knot_times_s(segments.start_s, segments.end_s)
    knots_ns, known = device.device_times(clock, knots_s, cfg.max_inner_gap_s)
    if take.trajectory is None:
        raise TakeFault(RejectCode.NO_TRAJECTORY, "the take has no pose file")
    stream = closed_loop.read_poses(data_root, take.trajectory, knots_ns // 1000, inner_gap_us(cfg))
    if len(stream.stamp_us) < 2:
        raise TakeFault(RejectCode.TRAJ_TRUNCATED, f"{len(stream.stamp_us)} pose rows", take.trajectory)
    brackets = bracket(stream, knots_ns)
    reading = KnotReading(clock, knots_ns, known, stream, brackets, measure(stream, brackets))
    faults = [_segment_fault(reading, take, cfg, at) for at in range(len(segments.ids))]
    rejects = [_reject(take, *fault, segments.ids[at]) for at, fault in enumerate(faults) if fault is not None]
    if not stream.was_sorted:
        rejects.insert(0, _reject(take, RejectCode.TRAJ_UNSORTED, "the rows were not in order of time"))
    kept = np.array([at for at, fault in enumerate(faults) if fault is None], dtype=np.intp)
    if not len(kept):
        return motions_schema().empty_table(), rejects
    motions = relative_motions(_body_poses(data_root, take, reading, kept, cfg), len(kept))
    measures, ids = reading.measures, [segments.ids[at] for at in kept]
    rows = Rows(ids, motions, np.ones(len(ids)), measures.quality[kept], measures.gap_s[kept])
    return motions_table(take.take_id, rows, "aria", "metric", cfg), rejects


def _reject(take: Take, code: RejectCode, detail: str, segment_id: str | None = None) -> Reject:
    """Build the reject of one segment (or a repair of the take's file)."""
    file = take.timesync if code == RejectCode.TIMESYNC_MISMATCH else take.trajectory
    return reject(STAGE_NAME, code, take.take_id, detail, segment=segment_id, source_file=file)


def _segment_fault(reading: KnotReading, take: Take, cfg: TrajectoryConfig, at: int) -> tuple[RejectCode, str] | None:
    """Return the reason why segment number `at` cannot be used, or None."""
    if not reading.known[at].all():
        return RejectCode.TIMESYNC_MISMATCH, "the timesync file has no device time for frames of the segment"
    if reading.knots_ns[at, -1] <= reading.knots_ns[at, 0]:
        return RejectCode.SEGMENT_EMPTY, "the segment ends before it starts"
    covered = reading.brackets.covered[at]
    if not covered.all():
        origin_ns = int(device.device_times(reading.clock, np.zeros(1), np.inf)[0][0])
        first_s, last_s = ((int(stamp) * 1000 - origin_ns) / NS_PER_S for stamp in reading.stream.stamp_us[[0, -1]])
        part_s = f"covers {first_s:.2f}-{last_s:.2f} s of {take.duration_s:.2f} s"
        return RejectCode.TRAJ_TRUNCATED, f"{part_s}, {covered.mean():.0%} of the segment's knots"
    return find_fault(reading.measures, cfg, at)


def _body_poses(
    data_root: str, take: Take, reading: KnotReading, kept: NDArray[np.intp], cfg: TrajectoryConfig
) -> Poses:
    """Return the (N * K,) poses of the N segments kept: T_world_camera or T_world_device, as set.

    T_device_camera is one per segment, from the calibration line nearest to the segment's middle.

    Raises TakeFault: CALIBRATION_MISSING.
    """
    T_world_device = sample(reading.stream, part(reading.brackets, kept))
    if cfg.frame == "device":
        return T_world_device
    if take.calibration is None:
        raise TakeFault(RejectCode.CALIBRATION_MISSING, "the take has no calibration file")
    content = read_bytes(data_root, take.calibration, RejectCode.CALIBRATION_MISSING)
    n_knots = reading.knots_ns.shape[1]
    middle_us = reading.knots_ns[kept, n_knots // 2] // 1000
    T_device_camera = device.nearest_extrinsics(content, middle_us, cfg.quaternion_tolerance, take.calibration)
    each_knot = geometry.take(T_device_camera, np.repeat(np.arange(len(kept)), n_knots))
    T_world_camera = geometry.compose(T_world_device, each_knot)
    return geometry.compose(T_world_camera, RAW_UPRIGHT) if cfg.frame == "camera_upright" else T_world_camera
