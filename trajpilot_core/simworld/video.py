"""Write frames as mp4 so that equal frames give equal bytes: one thread, fixed settings, no dates in the file."""

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.codec.context import Flags
from numpy.typing import NDArray

KEYFRAME_EVERY = 60
TICKS_PER_FRAME = 512


def write_video(
    path: Path, frames: Iterable[NDArray[np.uint8]], fps: int, crf: int, ticks: Iterable[int] | None = None
) -> int:
    """Encode upright RGB frames (S, S, 3) as H.264 (B-frames, 4:2:0) in mp4.

    Args:
        path: file to write; the caller renames it into place.
        crf: constant rate factor (mpeg4: fixed quantiser in its place).
        ticks: presentation time of every frame in 1 / (512 * fps) s; None: evenly spaced.

    Returns:
        The number of frames written.
    """
    with av.open(str(path), "w", format="mp4", options={"fflags": "+bitexact", "movflags": "+faststart"}) as container:
        stream, count = None, 0
        clock = iter(ticks) if ticks is not None else None
        for frame in frames:
            if stream is None:
                stream = add_stream(container, fps, crf, frame.shape[0])
            planes = np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2YUV_I420), np.uint8)
            picture = av.VideoFrame.from_ndarray(planes, format="yuv420p")
            picture.pts = next(clock) if clock is not None else count * TICKS_PER_FRAME
            picture.time_base = Fraction(1, fps * TICKS_PER_FRAME)
            container.mux(stream.encode(picture))
            count += 1
        if stream is not None:
            container.mux(stream.encode(None))
    return count


def add_stream(container: av.container.OutputContainer, fps: int, crf: int, size_px: int) -> av.VideoStream:
    """Add the one video stream with settings that do not depend on the machine."""
    name = "libx264" if "libx264" in av.codecs_available else "mpeg4"  # where this build of FFmpeg lacks the first
    fixed = {"preset": "superfast", "crf": str(crf), "bf": "3", "x264-params": "threads=1:lookahead-threads=1"}
    options = fixed if name == "libx264" else {"qscale": "4", "bf": "2"}
    stream = container.add_stream(name, rate=fps, options=options)
    assert isinstance(stream, av.VideoStream)
    stream.width = stream.height = size_px
    stream.pix_fmt = "yuv420p"
    stream.gop_size = KEYFRAME_EVERY
    context = stream.codec_context
    context.thread_count = 1
    context.flags |= Flags.bitexact
    context.time_base = Fraction(1, fps * TICKS_PER_FRAME)
    return stream
