"""The decoder process of the pose sources: frames for a model, or the odometry itself. See `video.child`.

Jobs: {"kind": "views", "path", "times_s", "pixel_limit"} and {"kind": "odometry", "path", "times_s", "lens", "config"}.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import cv2
import numpy as np

from schemas.poses import OdometryConfig
from trajpilot_core.arrays import Image
from trajpilot_core.poses.geometry import Lens, PoseFault
from trajpilot_core.poses.odometry.clip import estimate
from trajpilot_core.video.child import ChildEvent, fault_event, main
from trajpilot_core.video.decode import Times, sweep
from trajpilot_core.video.pyav_backend import PyavReader
from trajpilot_core.video.table import VideoError

PATCH_PX = 14
"""Sides of Pi3's pictures are multiples of this."""


def _events(
    job: dict[str, Any],
    side_px: Callable[[int, int], int],
    event_of: Callable[[int, Image, Times, float], ChildEvent],
) -> Iterator[ChildEvent]:
    """Decode the segments of one video in one sweep and yield an event of each, in order of time.

    Args:
        job: `times_s` is (S, N); the frame of repeated times is used once.
        side_px: (width, height) of the picture as stored -> side of the square.
        event_of: (row of times_s; N RGB frames (N, S, S, 3), upright; their presentation times (N,), rising, seconds
            from the first frame of the video; width over height of the upright picture) -> event.

    Raises VideoError: the whole file cannot be used.
    """
    cv2.setNumThreads(1)
    with closing(PyavReader(job["path"])) as reader:
        width, height = reader.stream.codec_context.width, reader.stream.codec_context.height
        for row, clip in sweep(reader, np.asarray(job["times_s"], np.float64), side_px(width, height), job["path"]):
            if isinstance(clip, VideoError):
                yield fault_event(row, clip.code, str(clip))
                continue
            turned = round(reader.rotation_deg / 90) % 2
            pts_s, first = np.unique(clip.pts_s, return_index=True)
            yield event_of(row, clip.frames[first], pts_s, height / width if turned else width / height)


def odometry_reports(job: dict[str, Any]) -> Iterator[ChildEvent]:
    """Yield the poses of every segment of a take, or its fault."""
    cfg, lens = OdometryConfig.model_validate(job["config"]), Lens(*job["lens"])._replace(params=tuple(job["lens"][1]))

    def poses_of(row: int, frames: Image, pts_s: Times, aspect: float) -> ChildEvent:
        gray = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames])
        result = estimate(gray.astype(np.uint8), lens, aspect, cfg)
        if isinstance(result, PoseFault):
            return fault_event(row, result.code, result.detail)
        poses = result.T_clip_camera.tolist()
        values = {"segment": row, "pts_s": pts_s.tolist(), "poses": poses, "quality": result.quality}
        return ChildEvent("poses", values)

    return _events(job, lambda width, height: min(cfg.size_px, max(width, height)), poses_of)


def view_reports(job: dict[str, Any]) -> Iterator[ChildEvent]:
    """Yield the frames of every segment of a take in the size for Pi3, or its fault."""
    limit = int(job["pixel_limit"])

    def clip_of(row: int, frames: Image, pts_s: Times, aspect: float) -> ChildEvent:
        size = patch_size(aspect, limit)
        resized = np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])
        return ChildEvent("clip", {"segment": row, "pts_s": pts_s.tolist()}, resized.astype(np.uint8))

    return _events(job, lambda width, height: max(patch_size(width / height, limit)), clip_of)


def patch_size(aspect: float, pixel_limit: int) -> tuple[int, int]:
    """Return the largest (width, height) in multiples of 14, of about this aspect, within the limit of pixels."""
    width = (pixel_limit * aspect) ** 0.5
    across, down = max(1, round(width / PATCH_PX)), max(1, round(width / aspect / PATCH_PX))
    while across * down * PATCH_PX**2 > pixel_limit and max(across, down) > 1:
        if (across / down > aspect and across > 1) or down == 1:
            across -= 1
        else:
            down -= 1
    return across * PATCH_PX, down * PATCH_PX


if __name__ == "__main__":
    main({"views": view_reports, "odometry": odometry_reports})
