"""Pose sources: their interface, the list of them, and the one that a take uses.

Imports nothing heavy, because keys are made from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa
from pydantic import JsonValue

from schemas.annotation import Take
from schemas.poses import PoseSourceName, TrajectoryConfig
from schemas.rejects import Reject

if TYPE_CHECKING:
    from trajpilot_core.engine.stage import Runtime

STAGE_NAME = "trajectories"
TakeJob = tuple[Take, JsonValue]
"""A take and its segments as [segment_id, start_s, end_s]."""


class Done(NamedTuple):
    """One finished take."""

    take_id: str
    table: pa.Table
    """Columns of `schemas.annotation.motions_schema`, in order of the segments: 17 poses of each segment as 16
    relative motions, with body frame, scale and quality."""
    rejects: list[Reject]
    n_in: int


class PoseSource(Protocol):
    """A source of poses: a module with these functions. Files and facts decide its results and enter the keys."""

    def files(self, take: Take, cfg: TrajectoryConfig) -> tuple[str, ...]:
        """Return the files that the poses are computed from: paths in the corpus, or full paths of weights."""
        ...

    def facts(self, take: Take, cfg: TrajectoryConfig) -> Mapping[str, JsonValue]:
        """Return what else decides the poses, apart from the segments."""
        ...

    def motions(self, jobs: Sequence[TakeJob], cfg: TrajectoryConfig, runtime: "Runtime") -> Iterator[Done]:
        """Compute takes, in any order; unusable segments become rejects.

        Raises:
            InputError: the source as a whole cannot work here (a package or weights are missing).
            WorkerError: a process crashed.
        """
        ...


def pose_source(name: PoseSourceName) -> PoseSource:
    """Return the source of that name."""
    if name == "aria":
        from trajpilot_core.poses.sources import aria

        return aria
    if name == "odometry":
        from trajpilot_core.poses.sources import odometry

        return odometry
    from trajpilot_core.poses.sources import pi3

    return pi3


def source_of(take: Take, cfg: TrajectoryConfig) -> PoseSourceName:
    """Return the source of a take's poses: the configured one, or the fallback where there is no pose file."""
    if cfg.fallback is not None and take.trajectory is None:
        return cfg.fallback
    return cfg.source
