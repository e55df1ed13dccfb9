"""Frames at given times: the frame that a time means, and its check.

A frame is addressed by time and its presentation time is checked; the header's frame count and frame indices are never
used (docs/decisions/video-backend.md).
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from schemas.rejects import RejectCode
from trajpilot_core.arrays import Image
from trajpilot_core.video.decord_backend import DecordReader
from trajpilot_core.video.pyav_backend import PyavReader, Shape
from trajpilot_core.video.table import FrameTable, VideoError

Times = NDArray[np.float64]


@dataclass(frozen=True)
class DecodedClip:
    """The frames of one segment."""

    frames: Image
    """(N, size, size, 3) uint8 RGB, upright."""
    pts_s: Times
    """(N,) presentation times, seconds from the first frame of the video."""


def frame_times_s(start_s: float, end_s: float, fps: float, n_frames: int) -> NDArray[np.float64]:
    """Return times of shape (n_frames,), seconds: from the start to one frame before the end of [start_s, end_s).

    The last frame is inside the half-open segment, so neighbouring segments share none (D 46 of
    docs/decisions/paper-gaps.md). In a segment shorter than a frame all times are its start.
    """
    return np.linspace(start_s, max(start_s, end_s - 1.0 / fps), n_frames)


def _squash(image: Image, size_px: int) -> Image:
    """Return a picture (H, W, 3) as (S, S, 3), S = `size_px`, by Pillow's bilinear filter, antialiased."""
    square = Pillow.fromarray(image).resize((size_px, size_px), Pillow.Resampling.BILINEAR)
    return np.asarray(square, np.uint8)


def clips(
    path: str,
    times_s: Times,
    size_px: int,
    resize: str | Shape = "swscale",
    max_off_s: float | None = None,
    backend: str = "pyav",
) -> Iterator[tuple[int, DecodedClip | VideoError]]:
    """Decode the segments of one video in one sweep; a frame that several segments share is decoded once.

    Args:
        times_s: (S, N) wanted times, seconds from the first frame.
        size_px: side of the square that a frame becomes.
        resize: how pictures become squares: a value of FeatureConfig.resize, or a function.
        max_off_s: largest distance of a frame from its time; None: half a frame.
        backend: a value of FeatureConfig.backend.

    Yields (row of times_s, clip or fault of that segment), every row once, in order of time.

    Raises:
        VideoError: the whole file cannot be used: VIDEO_MISSING, WRONG_TYPE or DECODE_FAILED.
    """
    shape = resize if callable(resize) else _squash if resize == "antialiased" else None  # None: swscale, before RGB
    if resize == "centre_crop":  # imported only if selected: other decoders need neither OpenCV nor Pillow
        from trajpilot_core.video.views import centre_crop

        shape = centre_crop
    with closing(DecordReader(path, shape) if backend == "decord" else PyavReader(path, shape)) as reader:
        yield from sweep(reader, times_s, size_px, path, max_off_s)


def sweep(
    reader: PyavReader, times_s: Times, size_px: int, path: str, max_off_s: float | None = None
) -> Iterator[tuple[int, DecodedClip | VideoError]]:
    """Decode the segments of an open video; arguments and results as in `clips`."""
    matched, faults = match_frames(reader.table, times_s, path, max_off_s)
    yield from faults.items()
    rows = sorted((row for row in range(len(times_s)) if row not in faults), key=lambda row: tuple(matched[row]))
    uses = Counter(int(pts) for row in rows for pts in set(matched[row].tolist()))
    images: dict[int, Image | VideoError] = {}
    left, stream = iter(sorted(uses)), reader.decode(sorted(uses), size_px)
    for row in rows:
        needed = matched[row].tolist()
        while not all(pts in images for pts in needed):
            pts, item = next(left), next(stream, None)
            if item is None or item[0] != pts:
                got = "no more frames" if item is None else f"the frame at {reader.table.time_s(item[0]):.4f} s"
                what = f"frame at {reader.table.time_s(pts):.4f} s: the decoder returned {got}"
                images[pts] = VideoError(RejectCode.FRAME_MISMATCH, what)
            else:
                images[pts] = item[1]
        yield row, _clip(reader.table, needed, images)
        for pts in set(needed):
            uses[pts] -= 1
            if not uses[pts]:
                del images[pts]


def match_frames(
    table: FrameTable, times_s: Times, path: str, max_off_s: float | None = None
) -> tuple[NDArray[np.int64], dict[int, VideoError]]:
    """Find the frame nearest to each time, at most `max_off_s` or half a frame away.

    A clock tick is added to the tolerance, since times are rounded to it, but at most a quarter of a frame: a tick may
    be a frame.

    Returns (S, N) presentation times in ticks, and the faults of rows for which a frame is missing.
    """
    shown_s = (table.shown - table.shown[0]) * float(table.tick_s)
    right = np.clip(np.searchsorted(shown_s, times_s), 1, len(shown_s) - 1)  # a table has two frames or more
    left = right - 1
    nearest = np.where(times_s - shown_s[left] <= shown_s[right] - times_s, left, right)
    off_s = np.abs(shown_s[nearest] - times_s)
    allowed_s = max_off_s or 0.5 / table.fps + min(float(table.tick_s), 0.25 / table.fps)
    faults = {}
    for row in np.flatnonzero(~(off_s <= allowed_s).all(axis=1)):
        worst = int(np.nan_to_num(off_s[row], nan=np.inf).argmax())
        wanted = f"wanted {times_s[row, worst]:.4f} s, the nearest frame is {off_s[row, worst]:.4f} s away"
        detail = f"{path}: {wanted}, allowed is {allowed_s:.4f} s"
        faults[int(row)] = VideoError(RejectCode.FRAME_MISMATCH, detail)
    return table.shown[nearest], faults


def _clip(table: FrameTable, needed: list[int], decoded: dict[int, Image | VideoError]) -> DecodedClip | VideoError:
    """Stack the frames of one segment, or return the first fault among them."""
    images = []
    for pts in needed:
        image = decoded[pts]
        if isinstance(image, VideoError):
            return image
        images.append(image)
    return DecodedClip(np.stack(images), np.array([table.time_s(pts) for pts in needed]))
