"""How pose streams become head motions, the pose sources that read video, and the table that compares pose sources.

Reasons: docs/decisions/poses.md. "D nn" is a decision of docs/decisions/paper-gaps.md.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.places import Place
from schemas.training import ClosedDecodingConfig, IntervalConfig, Precision, PredictorConfig

PoseSourceName = Literal["aria", "pi3", "odometry"]
VideoSourceName = Literal["pi3", "odometry"]
POSE_MODELS = ("files", "video", "both", "both_equal", "none")
"""Predictors trained per seed, by their head motion: `both` has every window twice and so twice the steps, `both_equal`
as many steps as the others; `none` gets no trajectories."""


class OdometryConfig(Record):
    """Visual odometry with OpenCV, for machines without a GPU."""

    rate_hz: float = Field(10.0, gt=0, le=60)
    """Frames per second that are used."""
    max_frames: int = Field(240, ge=17)
    """Most frames of a segment; a longer segment is sampled at a lower rate."""
    size_px: int = Field(320, ge=64, le=1408)
    """Frames are squashed to at most this square, pixels."""
    intrinsics: Literal["calibration", "assumed"] = "calibration"
    """calibration: use the lens of the take's calibration file, where there is one; assumed: never use it."""
    view_deg: float = Field(90.0, gt=20, lt=170)
    """Angle of view along the longer side of the picture, degrees, where no calibration gives it."""
    corners: int = Field(240, ge=32)
    """Corners that are tracked at a time."""
    min_corners: int = Field(24, ge=8)
    """A segment is rejected if neighbouring frames have fewer corners in common."""
    min_motion_px: float = Field(0.3, ge=0)
    """A segment is rejected if its corners never move by more than this."""
    min_parallax_px: float = Field(0.75, ge=0)
    """If a pure rotation leaves less than this unexplained, there is no translation."""
    sigma_px: float = Field(0.5, gt=0)
    """Usual error of a corner's position."""
    decode_timeout_s: float = Field(300.0, gt=0)
    """A take whose decoder does not respond for longer is rejected."""


class Pi3Config(Record):
    """Pi3 or Pi3X, camera poses from 16 frames (the extra `pi3`). The released weights are CC BY-NC 4.0."""

    model: Literal["pi3", "pi3x"] = "pi3"
    """The paper has PI3 without a version; pi3x gives nearly metric scale."""
    weights: Place | None = None
    """Folder with model.safetensors, or that file."""
    weights_sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """Expected digest of model.safetensors."""
    pixel_limit: int = Field(255_000, ge=14 * 14)
    """Most pixels of a frame; sides are multiples of 14. Source: the loader of yyfz/Pi3."""
    precision: Precision = "auto"
    """Arithmetic; auto: bf16 on a GPU, fp32 on a CPU."""
    decode_timeout_s: float = Field(120.0, gt=0)
    """A take whose decoder does not respond for longer is rejected."""


PoseMetric = Literal["mid", "full"]
"""Share of right labels among the middle steps of a window, and among all; mean over windows of all horizons."""
POSE_METRICS: tuple[PoseMetric, ...] = ("mid", "full")
"""Both, in the order of the table."""


class PoseSourcesConfig(Record):
    """Predictors trained on one source of head motion, tested on another. Source: paper, section on RGB-only poses."""

    is_asked: bool = False
    """Compute this table and nothing else of planning: `video_motions` selects the second source."""


class CompletedPoseSources(PoseSourcesConfig, IntervalConfig):
    """With the settings of other stages that it uses."""

    predictor: PredictorConfig = PredictorConfig()
    """Settings of the predictor of every row."""
    decoding: ClosedDecodingConfig = ClosedDecodingConfig()
    """Decoding of class heads."""


class PoseScore(Record):
    """One value of one row, or its difference to another on the same windows, in percent."""

    sources: tuple[str, ...]
    """Sources of the head motion in the tables of the stages `trajectories` and `video_motions`."""
    row: str
    """Named after them (`evaluation.pose_rows.pose_rows`)."""
    against: str | None
    """Row that is subtracted; None if the value is no difference."""
    seed: int | None
    """None: mean over the seeds."""
    metric: PoseMetric
    value: float
    low: float
    """Lower end of the interval over takes; infinite if there are too few takes."""
    high: float
    n_windows: int
    n_takes: int


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

    @model_validator(mode="after")
    def _frame_is_known(self) -> Self:
        if self.frame == "device" and self.source != "aria":
            raise ValueError(
                "frame device needs the calibration of Aria glasses; poses from video are camera poses: "
                "use frame camera"
            )
        return self


class VideoMotionsConfig(TrajectoryConfig):
    """A second set of head motions, from the video: for the table of pose sources (docs/decisions/poses.md), or from
    the interval before an action (docs/decisions/epic-token.md)."""

    source: VideoSourceName = "pi3"
    """Source of poses: the video, by Pi3 or visual odometry."""
    span: Literal["segment"] = "segment"
    """The segments themselves."""
    scale: Literal["auto", "rms", "raw"] = "raw"
    """Lengths are kept as estimated; the table also converts them to the unit of the pose files."""
