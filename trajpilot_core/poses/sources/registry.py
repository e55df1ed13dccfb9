"""Pose sources by name, and which one a take has. Imports nothing heavy: keys are made from it."""

from schemas.annotation import Take
from schemas.poses import PoseSourceName
from schemas.trajectories import TrajectoryConfig
from trajpilot_core.poses.sources.base import PoseSource


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
    """Return which source a take's poses come from: the one that is set, or the fallback where it has no pose file."""
    if cfg.fallback is not None and take.trajectory is None:
        return cfg.fallback
    return cfg.source
