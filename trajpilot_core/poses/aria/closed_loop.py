"""Closed-loop poses of Project Aria (MPS `closed_loop_trajectory.csv`).

Format: https://facebookresearch.github.io/projectaria_tools/docs/data_formats/mps/slam/mps_trajectory. One row per
pose, about 1 kHz, `tracking_timestamp_us` on the device clock, T_world_device with the quaternion in the order
x, y, z, w. Columns are found by name: releases differ (20 columns, 28 with ECEF poses). A file with quaternion columns
in another order than their names state cannot be distinguished from a good one.

Only the lines that the knots need are parsed (trajpilot_core/poses/aria/sparse.py) where the file is local and in order
of time, else the whole file; the checks are the same. docs/decisions/gaps.md states what each way detects.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.rejects import RejectCode
from trajpilot_core.errors import TakeFault
from trajpilot_core.poses.aria import sparse
from trajpilot_core.poses.files import MISSING, local_path, read_bytes
from trajpilot_core.poses.geometry import Poses

STAMP, GRAPH, QUALITY = "tracking_timestamp_us", "graph_uid", "quality_score"
POSITION = tuple(f"t{axis}_world_device" for axis in "xyz")
QUATERNION = tuple(f"q{axis}_world_device" for axis in "xyzw")
NUMBERS = (*POSITION, *QUATERNION, QUALITY)
COLUMNS = (STAMP, GRAPH, *NUMBERS)
HEADER_BYTES = 1 << 16


@dataclass(frozen=True)
class PoseStream:
    """N poses in order of time, as written in the file."""

    stamp_us: NDArray[np.int64]
    """(N,) device clock, not decreasing."""
    T_world_device: Poses
    """(N,) as written: the quaternions are not normalised, anything may be NaN."""
    graph: NDArray[np.uint32]
    """(N,) number of the map that defines the world frame of the pose."""
    quality: NDArray[np.float64]
    """(N,) tracking quality, 0 to 1."""
    readable: NDArray[np.bool_]
    """(N,) False: a needed field is missing or not a number. The row then has the stamp of the row before it."""
    was_sorted: bool


def read_poses(data_root: str, path: str, knots_us: NDArray[np.int64], max_inner_gap_us: int) -> PoseStream:
    """Read the poses that a take's segments need: all rows of the file, or some with the same results for every knot.

    Args:
        data_root: corpus root, a folder or a URL; `path` is relative to it.
        knots_us: (S, K) knot times of S segments, whole microseconds (rounded down), rising along K.
        max_inner_gap_us: longest hole allowed inside a segment.

    Raises TakeFault: NO_TRAJECTORY, TRAJ_MALFORMED, INPUT_UNSTABLE.
    """
    local = local_path(data_root, path)
    if local is None:
        return parse(read_bytes(data_root, path, RejectCode.NO_TRAJECTORY), path)
    try:
        with local.open("rb") as file:
            head = file.read(HEADER_BYTES)
    except MISSING as error:
        raise TakeFault(RejectCode.NO_TRAJECTORY, "the pose file is missing", path) from error
    names, before = header(head, path), local.stat()
    content = sparse.thin(local, names.index(STAMP), knots_us, max_inner_gap_us)
    after = local.stat()
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        raise TakeFault(RejectCode.INPUT_UNSTABLE, "the pose file changed while it was read", path)
    thinned = None if content is None else parse(content, path)
    if thinned is not None and thinned.was_sorted and bool(thinned.readable.all()):
        return thinned
    return _rows(local, path)


def header(head: bytes, path: str) -> list[str]:
    """Return the column names of a pose file from its first bytes.

    Raises TakeFault: TRAJ_MALFORMED, the file is empty, of another format, or lacks a column.
    """
    line = head.removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n").partition(b"\n")[0]
    if not line.strip():
        raise TakeFault(RejectCode.TRAJ_MALFORMED, "the file is empty", path)
    if line.lstrip().startswith((b"<", b"{", b"PK")) or b"\0" in line:
        raise TakeFault(RejectCode.TRAJ_MALFORMED, f"not a CSV file, it begins with {line[:40]!r}", path)
    names = next(csv.reader([line.decode("utf-8", errors="replace").strip()]))
    wrong = [name for name in COLUMNS if names.count(name) != 1]
    if wrong:
        present = ", ".join(names[:5])
        detail = f"needs each of these columns once: {', '.join(wrong)}; the {len(names)} found begin with {present}"
        raise TakeFault(RejectCode.TRAJ_MALFORMED, detail, path)
    return names


def parse(content: bytes, path: str) -> PoseStream:
    """Parse a whole pose file, header included. Raises TakeFault: TRAJ_MALFORMED."""
    header(content[:HEADER_BYTES], path)
    return _rows(content, path)


def _rows(source: Path | bytes, path: str) -> PoseStream:
    """Read the ten needed columns, order the rows by time and mark the unreadable ones; none is dropped."""
    types: dict[str, pl.DataType | type[pl.DataType]] = dict.fromkeys(NUMBERS, pl.Float64)
    types |= {STAMP: pl.Int64, GRAPH: pl.Categorical}
    try:
        lazy = pl.scan_csv(
            source, schema_overrides=types, infer_schema=False, ignore_errors=True, truncate_ragged_lines=True
        )
        frame = lazy.select(COLUMNS).collect()  # missing and unreadable fields are null
    except pl.exceptions.PolarsError as error:
        raise TakeFault(RejectCode.TRAJ_MALFORMED, f"the rows cannot be parsed: {error}", path) from error
    is_readable = ~pl.any_horizontal(pl.all().is_null())
    stamp = pl.when(is_readable).then(pl.col(STAMP)).forward_fill().backward_fill().fill_null(0)
    readable = frame.select(is_readable).to_series().to_numpy()
    stamp_us = frame.select(stamp).to_series().to_numpy()
    numbers = frame.select(pl.col(NUMBERS).fill_null(float("nan"))).to_numpy()
    graph = frame[GRAPH].to_physical().fill_null(0).to_numpy()
    was_sorted = bool((stamp_us[1:] >= stamp_us[:-1]).all())
    if not was_sorted:
        order = np.argsort(stamp_us, kind="stable")
        stamp_us, numbers, graph, readable = stamp_us[order], numbers[order], graph[order], readable[order]
    poses = Poses(numbers[:, 3:7], numbers[:, 0:3])
    return PoseStream(stamp_us, poses, graph, numbers[:, 7], readable, was_sorted)
