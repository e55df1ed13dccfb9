"""Pose sources by name, and which one a take has. Imports nothing heavy: keys are made from it."""

from schemas.annotation import Take
from schemas.config import TrajectoryConfig
from schemas.poses import PoseSourceName
from trajpilot_core.poses.sources.base import PoseSource


def pose_source(name: PoseSourceName) -> PoseSource:
    """Return the source of that name."""
    if name == "aria":
        from trajpilot_core.poses.sources.aria import AriaSource

        return AriaSource()
    if name == "odometry":
        from trajpilot_core.poses.sources.odometry import OdometrySource

        return OdometrySource()
    from trajpilot_core.poses.sources.pi3 import Pi3Source

    return Pi3Source()


def source_of(take: Take, cfg: TrajectoryConfig) -> PoseSourceName:
    """Return which source a take's poses come from: the one that is set, or the fallback where it has no pose file."""
    if cfg.fallback is not None and take.trajectory is None:
        return cfg.fallback
    return cfg.source
