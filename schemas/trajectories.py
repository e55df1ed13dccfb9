"""How pose streams become head motions: settings of the stages `trajectories` and `video_motions`.

"D nn" is a decision of docs/decisions/paper-gaps.md.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.poses import OdometryConfig, Pi3Config, PoseSourceName, VideoSourceName


class TrajectoryConfig(Record):
    """How a pose stream becomes the 16 relative motions of a segment."""

    source: PoseSourceName = "aria"
    """Source of poses: pose files, or the video by Pi3 or visual odometry."""
    frame: Literal["camera", "device", "camera_upright"] = "camera"
    """Body frame and its axes: raw Aria RGB camera (x down, y left, z forward), device, or upright camera (x right, y
    down, z forward) (D 20)."""
    max_bracket_gap_s: float = Field(0.020, gt=0)
    """Longest gap between the two poses around a knot, seconds (D 49)."""
    max_inner_gap_s: float = Field(0.100, gt=0)
    """Longest gap anywhere inside a segment, seconds (D 49)."""
    min_quality: float = Field(0.5, ge=0, le=1)
    """Lowest tracking quality_score that is accepted."""
    quaternion_tolerance: float = Field(1e-3, gt=0)
    """Largest deviation of a quaternion's norm from 1."""
    reader: Literal["auto", "sparse", "whole"] = "auto"
    """whole: parse the whole file; auto and sparse: only the lines around each knot, where the file allows it."""
    fallback: VideoSourceName | None = None
    """Pose source for takes without a pose file, next to source aria; one set of motions then contains both. None: such
    takes are rejected."""
    scale: Literal["auto", "rms", "raw"] = "auto"
    """Scale of motions from video: rms divides each clip by its root mean square step, raw keeps it; auto: raw for
    pi3x, else rms (D 20)."""
    span: Literal["segment", "action", "gap"] = "segment"
    """What the motions cover: the segment; or, if segments are intervals before actions, the action, or the gap between
    the two (docs/decisions/epic-token.md)."""
    scale_factor: float | None = Field(None, gt=0)
    """Factor of all lengths after scaling: with rms, the median step, in metres, of the poses on which the trajectory
    encoder was trained; None: 1."""
    odometry: OdometryConfig = OdometryConfig()
    pi3: Pi3Config = Pi3Config()

    def scale_rule(self, source: VideoSourceName) -> Literal["rms", "raw"]:
        """Return the scale rule of a source."""
        if self.scale != "auto":
            return self.scale
        return "raw" if source == "pi3" and self.pi3.model == "pi3x" else "rms"

    def sources(self) -> tuple[PoseSourceName, ...]:
        """Return the sources that one set of motions may contain."""
        return (self.source,) if self.fallback is None else (self.source, self.fallback)

    @model_validator(mode="after")
    def _sources_agree(self) -> Self:
        if self.frame == "device" and self.sources() != ("aria",):
            raise ValueError(
                "frame device needs the calibration of Aria glasses; poses from video are camera poses: "
                "use frame camera"
            )
        if self.fallback is None:
            return self
        if self.source != "aria":
            raise ValueError(f"fallback is for takes without a pose file, next to source aria; source is {self.source}")
        if self.scale_rule(self.fallback) == "rms" and self.scale_factor is None:
            raise ValueError(
                "fallback mixes lengths in metres with arbitrary ones: set scale_factor to the median step of the pose "
                "files (`trajpilot poses step`), or scale to raw"
            )
        return self


class VideoMotionsConfig(TrajectoryConfig):
    """A second set of head motions, from the video: for the table of pose sources (docs/decisions/poses.md), or from
    the interval before an action (docs/decisions/epic-token.md)."""

    source: PoseSourceName = "pi3"
    """Source of poses: the video, by Pi3 or visual odometry."""
    scale: Literal["auto", "rms", "raw"] = "raw"
    """Lengths are kept as estimated; the table also converts them to the unit of the pose files."""
