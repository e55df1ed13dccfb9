"""Open a video safely and list its frames by presentation time, without trusting a suffix or a header.

What is checked before anything is decoded, and the measurements behind it: docs/decisions/video-backend.md.
"""

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.video.stream import VideoStream
from numpy.typing import NDArray

from schemas.rejects import RejectCode
from trajpilot_core.errors import TrajPilotError

MAX_SIDE_PX, MAX_PX, MAX_DURATION_S, MAX_STREAMS = 8192, 64_000_000, 24 * 3600.0, 16
"""Limits before allocation: a small file can declare a huge picture, length or number of streams."""
MP4_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")


class VideoError(TrajPilotError):
    """A video cannot be used; `code` is the reject that it becomes."""

    def __init__(self, code: RejectCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class FrameTable:
    """Packets of the video stream in file (decoding) order; P packets, F of them shown.

    Times in ticks of `tick_s`. Pre-roll packets of a cut stream (edit list) are decoded but not shown.
    """

    pts: NDArray[np.int64]
    """(P,) presentation time."""
    dts: NDArray[np.int64]
    """(P,) decoding time."""
    is_key: NDArray[np.bool_]
    """(P,) a decoder can start here."""
    is_corrupt: NDArray[np.bool_]
    """(P,) the container marks the packet as damaged."""
    shown: NDArray[np.int64]
    """(F,) presentation times of the frames that are shown, rising."""
    tick_s: Fraction
    fps: float
    is_vfr: bool
    has_preroll: bool

    def time_s(self, pts: int) -> float:
        """Seconds from the first frame that is shown to the frame at `pts`."""
        return float((pts - int(self.shown[0])) * self.tick_s)


def sniff(path: str) -> str:
    """Return the demuxer's name for a file by its first bytes.

    Raises:
        VideoError: no file (VIDEO_MISSING), an empty file (DECODE_FAILED), not a video container (WRONG_TYPE).
    """
    try:
        with Path(path).open("rb") as file:
            head = file.read(16)
    except OSError as error:
        raise VideoError(
            RejectCode.VIDEO_MISSING, f"{path}: {error.strerror}; a readable video file was expected"
        ) from error
    except ValueError as error:  # a NUL in the name
        raise VideoError(RejectCode.VIDEO_MISSING, f"{path!r} cannot be the name of a file") from error
    if not head:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} is empty (0 bytes)")
    if head[4:8] in MP4_BOXES:
        return "mov"
    if head[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if head[:4] == b"RIFF" and head[8:12] == b"AVI ":
        return "avi"
    raise VideoError(
        RejectCode.WRONG_TYPE,
        f"{path} begins with {head[:12]!r}, which is no MP4, MOV, Matroska or AVI file; download it again",
    )


def open_video(path: str) -> tuple[InputContainer, VideoStream]:
    """Open the first video stream with one decoder thread, after the limits of this module were checked.

    Raises:
        VideoError: as `sniff`, and DECODE_FAILED where no video stream opens or a limit is passed.
    """
    demuxer = sniff(path)
    options = {"protocol_whitelist": "file", "max_streams": str(MAX_STREAMS)}
    try:
        container = av.open(path, format=demuxer, options=options)
    except (FFmpegError, MemoryError, ValueError) as error:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} does not open as {demuxer}: {error}") from error
    if not container.streams.video:
        code = RejectCode.WRONG_TYPE if len(container.streams) else RejectCode.DECODE_FAILED
        kinds = sorted({stream.type for stream in container.streams}) or "nothing"
        container.close()
        raise VideoError(code, f"{path} holds no video stream, it holds {kinds}")
    stream = container.streams.video[0]
    try:
        _check_limits(path, container, stream)
    except VideoError:
        container.close()
        raise
    stream.thread_type = "NONE"
    stream.codec_context.thread_count = 1
    return container, stream


def _check_limits(path: str, container: InputContainer, stream: VideoStream) -> None:
    """Refuse pictures, lengths and stream counts beyond the limits of this module."""
    width, height = stream.codec_context.width, stream.codec_context.height
    seconds = (container.duration or 0) / 1e6
    allowed = {
        f"{width} x {height} px, allowed are 1 to {MAX_SIDE_PX} a side and {MAX_PX} in all": (
            0 < width <= MAX_SIDE_PX and 0 < height <= MAX_SIDE_PX and width * height <= MAX_PX
        ),
        f"{seconds:.0f} s long, allowed are {MAX_DURATION_S:.0f}": seconds <= MAX_DURATION_S,
        f"{len(container.streams)} streams, allowed are {MAX_STREAMS}": len(container.streams) <= MAX_STREAMS,
    }
    for found, holds in allowed.items():
        if not holds:
            raise VideoError(RejectCode.DECODE_FAILED, f"{path}: {found}")


def frame_table(path: str, container: InputContainer, stream: VideoStream) -> FrameTable:
    """Read all packets of the stream (none is decoded) and list its frames.

    Raises:
        VideoError: DECODE_FAILED where the file is cut short, holds no frame, or gives no presentation times.
    """
    rows = _packets(path, container, stream)
    declared = len(stream.index_entries) if container.format.name.startswith("mov") else 0
    if len(rows) < declared:
        raise VideoError(
            RejectCode.DECODE_FAILED, f"{path} is cut short: its index lists {declared} frames, {len(rows)} are there"
        )
    table = np.array([row[:2] for row in rows], dtype=np.int64).reshape(-1, 2)
    flags = np.array([row[2:] for row in rows], dtype=np.bool_).reshape(-1, 3)
    shown = np.unique(table[~flags[:, 2], 0])
    if not len(shown) or stream.time_base is None:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} holds no video frame with a presentation time")
    fps, is_vfr = _frame_rate(shown, stream.time_base, stream.average_rate)
    return FrameTable(
        pts=table[:, 0], dts=table[:, 1], is_key=flags[:, 0], is_corrupt=flags[:, 1], shown=shown,
        tick_s=stream.time_base, fps=fps, is_vfr=is_vfr, has_preroll=bool(flags[:, 2].any()),
    )  # fmt: skip


def _packets(path: str, container: InputContainer, stream: VideoStream) -> list[tuple[int, int, bool, bool, bool]]:
    """List (pts, dts, is_key, is_corrupt, is_hidden) per packet in file order."""
    rows = []
    try:
        for packet in container.demux(stream):
            if packet.size == 0:
                continue
            dts, pts = packet.dts, packet.pts if packet.pts is not None else packet.dts
            if pts is not None:
                flags = packet.is_keyframe, packet.is_corrupt, packet.is_discard
                rows.append((pts, dts if dts is not None else pts, *flags))
    except FFmpegError as error:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} breaks off at packet {len(rows)}: {error}") from error
    return rows


def _frame_rate(shown: NDArray[np.int64], tick_s: Fraction, declared: Fraction | None) -> tuple[float, bool]:
    """Return the nominal frames per second of presentation times (F,), and whether they are uneven."""
    if len(shown) < 2:
        return float(declared or 30), False
    steps = np.diff(shown)
    usual = float(np.median(steps))
    is_vfr = bool(np.abs(steps - usual).max() > 1 + 0.1 * usual)
    counted = (
        1.0 / float(usual * float(tick_s)) if is_vfr else (len(shown) - 1) / float((shown[-1] - shown[0]) * tick_s)
    )
    if declared and abs(float(declared) / counted - 1) < 1e-3:
        return float(declared), is_vfr
    return counted, is_vfr


def presented(frame: Any) -> int:
    """Return a frame's presentation time in ticks; a frame without one raises VideoError."""
    if frame.pts is None:
        raise VideoError(RejectCode.DECODE_FAILED, "the decoder returned a frame without a presentation time")
    return int(frame.pts)
