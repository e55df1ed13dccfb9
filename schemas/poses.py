"""Settings of the pose sources that read video. Reasons: docs/decisions/poses.md."""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.places import Place

PoseSourceName = Literal["aria", "pi3", "odometry"]
VideoSourceName = Literal["pi3", "odometry"]


class OdometryConfig(Record):
    """Visual odometry with OpenCV, for machines without a GPU."""

    rate_hz: float = Field(10.0, gt=0, le=60, description="Frames per second that are looked at.")
    max_frames: int = Field(240, ge=17, description="Most frames of a segment; a longer one is looked at less often.")
    size_px: int = Field(320, ge=64, le=1408, description="Frames are squashed to at most this square, pixels.")
    intrinsics: Literal["calibration", "assumed"] = Field("calibration", description="calibration: the lens of the take's calibration file, where there is one; assumed: never.")
    view_deg: float = Field(90.0, gt=20, lt=170, description="Angle of view along the longer side of the picture, where no calibration says it.")
    corners: int = Field(240, ge=32, description="Corners that are kept in view.")
    min_corners: int = Field(24, ge=8, description="Fewer corners in common between neighbouring frames reject the segment.")
    min_motion_px: float = Field(0.3, ge=0, description="Corners that never move by more reject the segment.")
    min_parallax_px: float = Field(0.75, ge=0, description="A turn that leaves less than this explains the motion: no translation.")
    sigma_px: float = Field(0.5, gt=0, description="Usual error of a corner's place.")
    decode_timeout_s: float = Field(300.0, gt=0, description="A take whose decoder is silent for longer is rejected.")


class Pi3Config(Record):
    """Pi3 or Pi3X, camera poses from 16 frames (the extra `pi3`). The released weights are CC BY-NC 4.0."""

    model: Literal["pi3", "pi3x"] = Field("pi3", description="The paper says PI3 without a version; pi3x gives nearly metric scale.")
    weights: Place | None = Field(None, description="Folder with model.safetensors, or that file; None: the hub's weights of the model.")
    hub: str | None = Field(None, description="Hub id in place of yyfz233/Pi3 or yyfz233/Pi3X.")
    revision: str | None = Field(None, description="Pinned commit of the hub's weights.")
    weights_sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$", description="Expected digest of model.safetensors.")
    pixel_limit: int = Field(255_000, ge=14 * 14, description="Most pixels of a frame; sides are multiples of 14. Source: the loader of yyfz/Pi3.")
    min_confidence: float = Field(0.0, ge=0, le=1, description="Mean confidence below this rejects the segment; 0: none is rejected.")
    precision: Literal["auto", "fp32", "bf16"] = Field("auto", description="Arithmetic; auto: bf16 on a GPU, fp32 on a CPU.")
    decode_timeout_s: float = Field(120.0, gt=0, description="A take whose decoder is silent for longer is rejected.")
