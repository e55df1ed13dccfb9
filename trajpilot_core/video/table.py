"""Open a video safely and list its frames by presentation time, without trusting a suffix or a header.

A packet of H.264 or H.265 in MP4 or Matroska is a sequence of units, each after its length. Inside a unit the bytes
00 00 are never followed by 00, 01 or 02 (ITU-T H.264, 7.4.1; H.265, 7.4.2), so the zero blocks of broken downloads,
which can decode without an error, are detected before decoding. Measurements: docs/decisions/video-backend.md.
"""

from array import array
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from av.error import FFmpegError
from av.stream import Disposition
from av.video.stream import VideoStream
from numpy.typing import NDArray

from schemas.rejects import RejectCode
from trajpilot_core.errors import TrajPilotError

MAX_SIDE_PX, MAX_PX, MAX_DURATION_S, MAX_STREAMS, MAX_FRAMES = 8192, 64_000_000, 24 * 3600.0, 16, 10_000_000
"""Limits that are checked before allocation: a small file can declare huge pictures, lengths, indices or streams."""
MIN_FPS = 1.0
"""Lower rates are rejected: 16 samples of an action would be one picture."""
MP4_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")
MAX_PADDING = 8
"""Zero bytes that a muxer may have left at the end of a unit."""


class VideoError(TrajPilotError):
    """A video cannot be used; `code` is that of its reject."""

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
    """(P,) whether a decoder can start here."""
    shown: NDArray[np.int64]
    """(F,) presentation times of the frames that are shown, rising."""
    tick_s: Fraction
    fps: float
    is_vfr: bool

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
        detail = f"{path}: {error.strerror}; a readable video file was expected"
        raise VideoError(RejectCode.VIDEO_MISSING, detail) from error
    except ValueError as error:  # a NUL in the name
        raise VideoError(RejectCode.VIDEO_MISSING, f"{path!r} cannot be a file name") from error
    if not head:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} is empty (0 bytes)")
    if head[4:8] in MP4_BOXES:
        return "mov"
    if head[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    detail = f"{path} begins with {head[:12]!r}, not an MP4, MOV or Matroska file; download it again"
    raise VideoError(RejectCode.WRONG_TYPE, detail)


def open_video(path: str) -> tuple[InputContainer, VideoStream]:
    """Open the first video stream that is no cover picture with one decoder thread, after its limits were checked.

    Raises:
        VideoError: as `sniff`, and DECODE_FAILED where no video stream opens or a limit is exceeded.
    """
    demuxer = sniff(path)
    options = {"protocol_whitelist": "file", "max_streams": str(MAX_STREAMS), "max_pixels": str(MAX_PX)}
    try:
        container = av.open(path, format=demuxer, options=options)
    except (FFmpegError, MemoryError, ValueError) as error:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} does not open as {demuxer}: {error}") from error
    try:
        pictures = [s for s in container.streams.video if not s.disposition & Disposition.attached_pic]
        if not pictures:
            code = RejectCode.WRONG_TYPE if len(container.streams) else RejectCode.DECODE_FAILED
            kinds = sorted({stream.type for stream in container.streams}) or "nothing"
            raise VideoError(code, f"{path} has no video stream but {kinds}")
        stream = pictures[0]
        if stream.codec_context is None:
            raise VideoError(RejectCode.DECODE_FAILED, f"{path}: there is no decoder for its video stream")
        width, height = stream.codec_context.width, stream.codec_context.height
        seconds, n_streams = (container.duration or 0) / 1e6, len(container.streams)
        allowed = {
            f"{width} x {height} px, allowed are 1 to {MAX_SIDE_PX} a side and {MAX_PX} in all": (
                0 < width <= MAX_SIDE_PX and 0 < height <= MAX_SIDE_PX and width * height <= MAX_PX
            ),
            f"{seconds:.0f} s long, allowed are {MAX_DURATION_S:.0f}": seconds <= MAX_DURATION_S,
            f"{n_streams} streams, allowed are {MAX_STREAMS}": n_streams <= MAX_STREAMS,
            f"{stream.frames} frames, allowed are {MAX_FRAMES}": stream.frames <= MAX_FRAMES,
        }
        for value, holds in allowed.items():
            if not holds:
                raise VideoError(RejectCode.DECODE_FAILED, f"{path}: {value}")
    except VideoError:
        container.close()
        raise
    stream.thread_type = "NONE"
    stream.codec_context.thread_count = 1
    stream.codec_context.options = {"max_pixels": str(MAX_PX)}  # of the stream itself, which may differ from the header
    return container, stream


def frame_table(path: str, container: InputContainer, stream: VideoStream) -> FrameTable:
    """Read all packets of the stream (none is decoded) and list its frames.

    Raises:
        VideoError: DECODE_FAILED where the file is cut short, has no frames, or no presentation times.
    """
    times, flags = array("q"), bytearray()  # a small file can contain millions
    try:
        for packet in container.demux(stream):
            shown_at = packet.pts if packet.pts is not None else packet.dts
            if packet.size == 0 or shown_at is None:
                continue
            times.extend((shown_at, packet.dts if packet.dts is not None else shown_at))
            flags.append(packet.is_keyframe | packet.is_discard << 1)
            if len(flags) > MAX_FRAMES:
                raise VideoError(RejectCode.DECODE_FAILED, f"{path} has more than {MAX_FRAMES} frames")
    except FFmpegError as error:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} ends early at packet {len(flags)}: {error}") from error
    pts, dts = (column.copy() for column in np.frombuffer(times, np.int64).reshape(-1, 2).T)
    is_key, is_hidden = ((np.frombuffer(flags, np.uint8) >> bit & 1).astype(np.bool_) for bit in range(2))
    shown = np.unique(pts[~is_hidden])
    if len(shown) < 2 or stream.time_base is None:
        detail = f"{path} has {len(shown)} frames with a presentation time, at least 2 are needed"
        raise VideoError(RejectCode.DECODE_FAILED, detail)
    problem = ""
    if container.format.name.startswith("mov") and len(pts) < len(stream.index_entries):
        problem = f"its index lists {len(stream.index_entries)} frames, {len(pts)} exist"
    elif not is_key.any():
        problem = "no frame is marked as a keyframe"
    if problem:
        raise VideoError(RejectCode.DECODE_FAILED, f"{path} is cut short or damaged: {problem}")
    steps, tick_s, declared = np.diff(shown), stream.time_base, stream.average_rate
    usual = float(np.median(steps))
    is_vfr = bool(np.abs(steps - usual).max() > 1 + 0.1 * usual)
    length_s = float((shown[-1] - shown[0]) * tick_s)
    fps = 1.0 / float(usual * float(tick_s)) if is_vfr else (len(shown) - 1) / length_s
    if declared and abs(float(declared) / fps - 1) < 1e-3:
        fps = float(declared)
    if fps < MIN_FPS:
        detail = f"{path}: its frames are {1 / fps:.3g} s apart, allowed is {1 / MIN_FPS:.3g} s"
        raise VideoError(RejectCode.DECODE_FAILED, detail)
    return FrameTable(pts, dts, is_key, shown, stream.time_base, fps, is_vfr)


def length_size(codec: str, extradata: bytes | None) -> int | None:
    """Return the size of a unit's length in bytes, or None where packets are not units with lengths."""
    at = {"h264": 4, "hevc": 21}.get(codec)
    if at is None or not extradata or extradata[0] != 1 or len(extradata) <= at:
        return None
    return (extradata[at] & 3) + 1


def malformed(packet: bytes, n_length: int) -> str | None:
    """Return what is wrong with a packet whose units have lengths of `n_length` bytes, or None."""
    at = 0
    while at < len(packet):
        begin = at + n_length
        at = begin + int.from_bytes(packet[at:begin], "big")
        if at == begin or at > len(packet):
            return f"a unit of {at - begin} bytes at byte {begin} of a packet of {len(packet)}"
        zeros = packet.find(b"\0\0", begin, at)
        while 0 <= zeros < at - 2:
            if packet[zeros + 2] < 3 and (at - zeros > MAX_PADDING or packet[zeros:at].strip(b"\0")):
                return f"invalid zero bytes at byte {zeros} of a packet of {len(packet)}"
            zeros = packet.find(b"\0\0", zeros + 1, at)
    return None
