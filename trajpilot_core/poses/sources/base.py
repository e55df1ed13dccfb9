"""Pose sources: their interface, and the list of them.

Imports nothing heavy, because keys are made from it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from pydantic import JsonValue

from schemas.annotation import Take
from schemas.poses import PoseSourceName, TrajectoryConfig
from schemas.rejects import Reject
from trajpilot_core.arrays import Array
from trajpilot_core.errors import MixedSourcesError

if TYPE_CHECKING:
    from trajpilot_core.engine.stage import Runtime

STAGE_NAME = "trajectories"
TakeJob = tuple[Take, JsonValue]
"""A take and its segments as [segment_id, start_s, end_s]."""
ORIGIN = ("source", "frame", "scale")
"""Columns of the motions that must agree; `frame` names the axes too."""


class Done(NamedTuple):
    """One finished take."""

    take_id: str
    table: pa.Table
    """Columns of `schemas.annotation.motions_schema`, in order of the segments: 17 poses of each segment as 16
    relative motions, with body frame, scale and quality."""
    rejects: list[Reject]
    n_in: int


class SegmentIntervals(NamedTuple):
    """The S segments of a take."""

    ids: list[str]
    start_s: Array
    end_s: Array


class PoseSource(Protocol):
    """A source of poses: a module with these functions. Files and facts decide its results and enter the keys."""

    def files(self, take: Take, cfg: TrajectoryConfig) -> tuple[str, ...]:
        """Return the files that the poses are computed from: paths in the corpus, or full paths of weights."""

    def facts(self, take: Take, cfg: TrajectoryConfig) -> Mapping[str, JsonValue]:
        """Return what else decides the poses, apart from the segments."""

    def motions(self, jobs: Sequence[TakeJob], cfg: TrajectoryConfig, runtime: "Runtime") -> Iterator[Done]:
        """Compute takes, in any order; unusable segments become rejects.

        Raises InputError: the source as a whole cannot work here (a package or weights are missing).
        """


def intervals(segments: JsonValue) -> SegmentIntervals:
    """Read the [segment_id, start_s, end_s] lists of a source's facts."""
    assert isinstance(segments, list)
    ids, start_s, end_s = zip(*segments, strict=True) if segments else ((), (), ())
    return SegmentIntervals(list(ids), np.array(start_s, dtype=float), np.array(end_s, dtype=float))


def pose_source(name: PoseSourceName) -> PoseSource:
    """Return the source of that name."""
    from trajpilot_core.poses.sources import aria, odometry, pi3

    sources: dict[PoseSourceName, PoseSource] = {"aria": aria, "odometry": odometry, "pi3": pi3}
    return sources[name]


def origins(motions: pa.Table) -> list[tuple[str, str, str]]:
    """Return the different (source, frame, scale) in a table of motions, sorted."""
    return sorted(_counted(motions))


def _counted(motions: pa.Table) -> Counter[tuple[str, str, str]]:
    """Return (source, frame, scale) -> its number of segments."""
    return Counter(zip(*(motions[name].to_pylist() for name in ORIGIN), strict=True))


def check_one_source(*tables: pa.Table) -> None:
    """Check that motions used together (of a training set, or of a bank and its queries) are of one origin.

    Raises MixedSourcesError: with the origins and the number of segments of each.
    """
    counts = sum((_counted(table) for table in tables), Counter[tuple[str, str, str]]())
    if len(counts) < 2:
        return
    counted = "; ".join(f"{n:,} segments from {', '.join(origin)}" for origin, n in sorted(counts.items()))
    raise MixedSourcesError(
        f"motions of different origin (source, frame, scale) would be mixed: {counted}; use one for all "
        "(--set trajectories.source, trajectories.frame)"
    )
