"""Frames by presentation time with PyAV: each file opened once, jumps to keyframes, unwanted frames not decoded.

Reasons and measurements: docs/decisions/video-backend.md.
"""

import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from av.error import FFmpegError
from av.packet import Packet
from av.sidedata.sidedata import Type as SideDataType
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter
from av.video.stream import VideoStream

from schemas.rejects import RejectCode
from trajpilot_core.arrays import Image
from trajpilot_core.video.table import VideoError, frame_table, length_size, malformed, open_video

DecodedFrame = tuple[int, Image | VideoError]
Shape = Callable[[Image, int], Image]
"""Upright RGB picture (H, W, 3), side S -> (S, S, 3)."""
NOTHING = -(1 << 63)
"""Before every presentation time."""
QUARTER_TURNS_DEG = {(1, 0, 0, 1): 0, (0, -1, 1, 0): 90, (-1, 0, 0, -1): 180, (0, 1, -1, 0): 270}
"""Display matrix -> degrees counter-clockwise that make a stored picture upright; others are refused."""
ROUNDING = 0.02
"""Of the entries of a display matrix, as of a turn that is a degree off."""


class PyavReader:
    """One open video and its table of packets."""

    def __init__(self, path: str, shape: Shape | None = None) -> None:
        self.path, self.shape = path, shape
        self.rotation_deg = 0
        self._matrix_deg: float | None = None
        """Rotation of the frame whose matrix was read last; reading it makes a cycle that keeps the frame in memory."""
        self.container, self.stream = open_video(path)
        self._shrinker, self._scaler = VideoReformatter(), VideoReformatter()
        try:
            self.table = frame_table(path, self.container, self.stream)
        except VideoError:
            self.container.close()
            raise
        context = self.stream.codec_context
        self._n_length = length_size(context.name, context.extradata)
        self._keys = np.flatnonzero(self.table.is_key)
        self._keys = self._keys[np.argsort(self.table.pts[self._keys], kind="stable")]
        self._key_pts: list[int] = self.table.pts[self._keys].tolist()
        self._index = {int(pts): index for index, pts in enumerate(self.table.pts)}
        rank = np.full(len(self.table.pts), -1)
        rank[self._keys] = np.arange(len(self._keys))
        last_key = np.maximum.accumulate(np.where(self.table.is_key, np.arange(len(rank)), 0))
        self._run: list[int] = rank[last_key].tolist()
        """Per packet: number of the keyframe that begins its run of packets, -1 before the first."""
        runs = np.split(self.table.pts, np.flatnonzero(self.table.is_key))
        self._needs: list[int] = np.concatenate([np.maximum.accumulate(run) for run in runs]).tolist()
        """Per packet: the last frame to come out of the packets of its run up to it."""

    def close(self) -> None:
        """Close the file."""
        self.container.close()

    def decode(self, wanted: Sequence[int], size_px: int) -> Iterator[DecodedFrame]:
        """Yield (pts, image (size, size, 3) uint8 RGB, or its fault) for every wanted frame.

        Decodes forward, and jumps where the next wanted frame has a keyframe ahead. The decoder skips unwanted packets
        that no other frame depends on. A frame is accepted when everything decoded before it has come out undamaged;
        damage spoils the frames up to the next keyframe.

        Args:
            wanted: presentation times in ticks, rising, each of them in `table.shown`.
            size_px: side of the square that the upright picture becomes.
        """
        todo, spoiled = deque(int(pts) for pts in wanted), dict[int, str]()
        wanted_set = frozenset(todo)
        while todo:
            before, start = len(todo), self._start(todo[0])
            ready: dict[int, Image] = {}
            shown_to = NOTHING
            for at, frames in self._fed(start, wanted_set, spoiled):
                for frame in frames:
                    if frame.pts is not None:
                        self._note_damage(frame, frame.pts, start, shown_to, spoiled)
                        shown_to = max(shown_to, frame.pts)
                        if frame.pts in wanted_set:
                            ready[frame.pts] = self._picture(frame, size_px)
                yield from self._settled(todo, ready, shown_to, spoiled)
                if not todo or self._start(todo[0]) > max(at + 1, start):
                    break
            else:
                yield from self._settled(todo, ready, None, spoiled)
            assert len(todo) < before, "a sweep must settle at least one frame"

    def _note_damage(self, frame: VideoFrame, pts: int, start: int, shown_to: int, spoiled: dict[int, str]) -> None:
        """Record damage of a frame that came out after those up to `shown_to` of a sweep from packet `start`."""
        if frame.is_corrupt:
            spoiled[self._run_of(pts)] = "the decoder marks the frame as corrupt"
        key, shown = int(self.table.pts[start]), self.table.shown
        at = int(np.searchsorted(shown, key))
        is_shown = at < len(shown) and int(shown[at]) == key  # and not pre-roll
        if self.table.is_key[start] and shown_to < key < pts and is_shown:
            spoiled[self._run[start]] = "the picture of the keyframe did not come out"

    def _settled(
        self, todo: deque[int], ready: dict[int, Image], shown_to: int | None, spoiled: dict[int, str]
    ) -> Iterator[DecodedFrame]:
        """Yield the wanted frames that are decided once those up to `shown_to` came out (None: no more will)."""
        while todo:
            pts = todo[0]
            why = spoiled.get(self._group(pts)) or spoiled.get(self._run_of(pts))
            if why:
                yield pts, self._bad(RejectCode.DECODE_FAILED, pts, why)
            elif shown_to is not None and self._needs[self._index[pts]] > shown_to:
                return
            elif pts in ready:
                yield pts, ready[pts]
            else:
                yield pts, self._bad(RejectCode.FRAME_MISMATCH, pts, "the decoder returned no such frame")
            ready.pop(pts, None)
            todo.popleft()

    def keyframe_at(self, pts: int) -> int:
        """Presentation time of the last keyframe at or before `pts` (the first shown frame where there is none)."""
        return max(self._key_pts[max(0, self._group(pts))], int(self.table.shown[0]))

    def _run_of(self, pts: int) -> int:
        """Number of the last keyframe decoded before the frame at `pts`; in an open GOP it is not always `_group`."""
        return self._run[self._index[pts]] if pts in self._index else self._group(pts)

    def _group(self, pts: int) -> int:
        """Number of the last keyframe shown at or before `pts`; -1: none."""
        return bisect_right(self._key_pts, pts) - 1

    def _start(self, pts: int) -> int:
        """Packet index at which decoding must begin to reach the frame at `pts`."""
        group = self._group(pts)
        return int(self._keys[group]) if group >= 0 else 0

    def _fed(
        self, start: int, wanted: frozenset[int], spoiled: dict[int, str]
    ) -> Iterator[tuple[int, Sequence[VideoFrame]]]:
        """Seek to packet `start`, then yield (packet index, frames that come out) packet by packet to the end."""
        context, skipping = self.stream.codec_context, False
        context.skip_frame = "DEFAULT"
        try:
            for packet in self._packets_from(start):
                pts = packet.pts if packet.pts is not None else packet.dts
                at = len(self.table.pts) if pts is None else self._index.get(pts, start)
                skip = pts is not None and pts not in wanted
                if skip != skipping:
                    context.skip_frame, skipping = "NONREF" if skip else "DEFAULT", skip
                damage = "the packet is marked as corrupt" if packet.is_corrupt else None
                if damage is None and self._n_length and pts is not None:  # damage that a decoder may not notice
                    damage = malformed(bytes(packet), self._n_length)
                if pts is not None and damage:
                    spoiled[self._run_of(pts)] = damage
                try:
                    frames: Sequence[VideoFrame] = context.decode(packet)
                except FFmpegError as error:
                    frames = ()
                    if pts is not None:
                        spoiled[self._run_of(pts)] = str(error)
                yield at, frames
        except FFmpegError as error:  # the demuxer itself
            spoiled.update(dict.fromkeys(range(-1, len(self._keys)), str(error)))
            yield len(self.table.pts), ()

    def _packets_from(self, start: int) -> Iterator["Packet[VideoStream]"]:
        """Demux from packet `start`, or from a keyframe before it where the container cannot seek there."""
        for target in (int(self.table.pts[start]), int(self.table.dts.min())):
            self.container.seek(target, stream=self.stream, backward=True)
            packets = self.container.demux(self.stream)
            first = next(packets, None)
            if first is None:
                return
            if first.pts is not None and self._index.get(first.pts, 0) <= start:
                break
        assert first is not None
        yield first
        yield from packets

    def _picture(self, frame: VideoFrame, size_px: int) -> Image:
        """Squash to (size, size, 3) RGB with swscale's bilinear filter (antialiased when shrinking), turn upright.

        The usual 4:2:0 video is shrunk first and converted to RGB afterwards, at 0.6 of the cost of doing both at once.
        With a `shape` the picture is converted to RGB and turned upright first.
        """
        if frame.rotation != self._matrix_deg:
            self.rotation_deg = turn_deg(frame)
            self._matrix_deg = frame.rotation
        if self.shape is not None:
            return self.shape(self._upright(np.asarray(frame.to_ndarray(format="rgb24"), np.uint8)), size_px)
        small = frame
        if frame.format.name == "yuv420p" and frame.color_range != ColorRange.JPEG:
            small = self._shrinker.reformat(frame, size_px, size_px, "yuv420p", interpolation=Interpolation.BILINEAR)
        small = self._scaler.reformat(small, size_px, size_px, "rgb24", interpolation=Interpolation.BILINEAR)
        return self._upright(np.asarray(small.to_ndarray(), np.uint8))

    def _upright(self, image: Image) -> Image:
        """Turn a picture according to its frame."""
        return np.ascontiguousarray(np.rot90(image, self.rotation_deg // 90))

    def _bad(self, code: RejectCode, pts: int, why: str) -> VideoError:
        """Return the fault of one frame."""
        return VideoError(code, f"{self.path}: frame at {self.table.time_s(pts):.3f} s: {why}")


def turn_deg(frame: VideoFrame) -> int:
    """Return the degrees counter-clockwise that make a stored picture upright: 0, 90, 180 or 270.

    Raises:
        VideoError: the display matrix is not a quarter turn, for example because the picture is stored mirrored.
    """
    matrix = frame.side_data.get(SideDataType.DISPLAYMATRIX)  # type: ignore[call-overload]
    if matrix is None:
        return 0
    a, b, _, c, d = (value / 65536 for value in struct.unpack("=5i", bytes(matrix)[:20]))
    turned = QUARTER_TURNS_DEG.get((round(a), round(b), round(c), round(d)))
    if turned is None or max(abs(value - round(value)) for value in (a, b, c, d)) > ROUNDING:
        detail = f"the display matrix {a:g} {b:g} {c:g} {d:g} is not a quarter turn; encode the video again"
        raise VideoError(RejectCode.DECODE_FAILED, detail)
    return turned
