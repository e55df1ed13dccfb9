"""The decoder process of the pose sources: frames for a model, or the odometry itself. See `video.child`.

Jobs: {"kind": "views", "path", "times_s", "pixel_limit"} and {"kind": "odometry", "path", "times_s", "lens", "config"}.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

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


class View(NamedTuple):
    """The frames of one segment."""

    frames: Image
    """(N, S, S, 3) uint8 RGB, upright, without repeated frames."""
    pts_s: NDArray[np.float64]
    """(N,) presentation times, rising, seconds from the first frame of the video."""
    aspect: float
    """Width over height of the upright picture."""


def views(path: str, times_s: Times, side_px: Callable[[int, int], int]) -> Iterator[tuple[int, View | VideoError]]:
    """Decode the segments of one video in one sweep.

    Args:
        path: local file.
        times_s: (S, N) wanted times, seconds; the frame of repeated times is returned once.
        side_px: (width, height) of the picture as stored -> side of the square.

    Yields (row of times_s, view or fault of that segment), every row once, in order of time.

    Raises VideoError: the whole file cannot be used.
    """
    with closing(PyavReader(path)) as reader:
        width, height = reader.stream.codec_context.width, reader.stream.codec_context.height
        for row, clip in sweep(reader, times_s, side_px(width, height), path):
            if isinstance(clip, VideoError):
                yield row, clip
                continue
            turned = round(reader.rotation_deg / 90) % 2
            pts_s, first = np.unique(clip.pts_s, return_index=True)
            yield row, View(clip.frames[first], pts_s, height / width if turned else width / height)


def odometry_reports(job: dict[str, Any]) -> Iterator[ChildEvent]:
    """Yield the poses of every segment of a take, or its fault."""
    cv2.setNumThreads(1)
    cfg, lens = OdometryConfig.model_validate(job["config"]), Lens(*job["lens"])._replace(params=tuple(job["lens"][1]))
    times_s = np.asarray(job["times_s"], np.float64)
    for row, view in views(job["path"], times_s, lambda width, height: min(cfg.size_px, max(width, height))):
        if isinstance(view, VideoError):
            yield fault_event(row, view.code, str(view))
            continue
        gray = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in view.frames])
        result = estimate(gray.astype(np.uint8), lens, view.aspect, cfg)
        if isinstance(result, PoseFault):
            yield fault_event(row, result.code, result.detail)
        else:
            poses = result.T_clip_camera.tolist()
            values = {"segment": row, "pts_s": view.pts_s.tolist(), "poses": poses, "quality": result.quality}
            yield ChildEvent("poses", values)


def view_reports(job: dict[str, Any]) -> Iterator[ChildEvent]:
    """Yield the frames of every segment of a take in the size for Pi3, or its fault."""
    cv2.setNumThreads(1)
    limit, times_s = int(job["pixel_limit"]), np.asarray(job["times_s"], np.float64)
    for row, view in views(job["path"], times_s, lambda width, height: max(patch_size(width / height, limit))):
        if isinstance(view, VideoError):
            yield fault_event(row, view.code, str(view))
            continue
        size = patch_size(view.aspect, limit)
        frames = np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in view.frames])
        yield ChildEvent("clip", {"segment": row, "pts_s": view.pts_s.tolist()}, frames.astype(np.uint8))


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
