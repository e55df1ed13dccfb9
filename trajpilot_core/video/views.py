"""Frames of segments for those who need to know how wide the picture was before it was squashed to a square."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpilot_core.arrays import Image
from trajpilot_core.video.decode import Times, sweep
from trajpilot_core.video.pyav_backend import PyavReader
from trajpilot_core.video.table import VideoError


class View(NamedTuple):
    """The frames of one segment."""

    frames: Image
    """(N, S, S, 3) uint8 RGB, upright; no frame stands there twice."""
    pts_s: NDArray[np.float64]
    """(N,) presentation times, rising, seconds from the first frame of the video."""
    aspect: float
    """Width over height of the upright picture."""


def views(path: str, times_s: Times, side_px: Callable[[int, int], int]) -> Iterator[tuple[int, View | VideoError]]:
    """Decode the segments of one video in one sweep.

    Args:
        path: local file.
        times_s: (S, N) wanted times, seconds; a time may be repeated, its frame is given once.
        side_px: (width, height) of the picture as stored -> side of the square.

    Yields (row of times_s, View or what is wrong with that segment), every row once, in order of time.

    Raises:
        VideoError: the whole file cannot be used.
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
