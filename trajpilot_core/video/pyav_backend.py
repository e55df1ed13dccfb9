"""Frames by presentation time with PyAV: one open per file, keyframe jumps, unwanted frames left out of decoding.

Why this is the default backend, with the measurements: docs/decisions/video-backend.md.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from av.error import FFmpegError
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.reformatter import ColorRange, Interpolation, VideoReformatter
from av.video.stream import VideoStream
from numpy.typing import NDArray

from schemas.rejects import RejectCode
from trajpilot_core.video.resize import squash
from trajpilot_core.video.table import FrameTable, VideoError, frame_table, open_video

Image = NDArray[np.uint8]
Item = tuple[int, Image | VideoError]


class PyavReader:
    """One open video and its table of packets. Satisfies `decode.FrameReader`."""

    table: FrameTable

    def __init__(self, path: str, resize: str = "swscale") -> None:
        self.path, self.resize = path, resize
        self.rotation_deg = 0
        self.container, self.stream = open_video(path)
        self._shrinker, self._scaler = VideoReformatter(), VideoReformatter()
        try:
            self.table = frame_table(path, self.container, self.stream)
        except VideoError:
            self.container.close()
            raise
        self._keys = np.flatnonzero(self.table.is_key)
        self._keys = self._keys[np.argsort(self.table.pts[self._keys], kind="stable")]
        self._key_pts: list[int] = self.table.pts[self._keys].tolist()
        self._index = {int(pts): index for index, pts in enumerate(self.table.pts)}

    def close(self) -> None:
        """Close the file."""
        self.container.close()

    def decode(self, wanted: Sequence[int], size_px: int) -> Iterator[Item]:
        """Yield (pts, image (size, size, 3) uint8 RGB, or what is wrong with the frame) for every wanted frame.

        Goes forward, and jumps where the next wanted frame has a keyframe ahead. Packets that nobody wants and no other
        frame is built on are skipped inside the decoder. A damaged packet spoils the frames up to the next keyframe.

        Args:
            wanted: presentation times in ticks, rising, each of them in `table.shown`.
            size_px: side of the square to which the upright picture is squashed.
        """
        todo, spoiled = deque(int(pts) for pts in wanted), dict[int, str]()
        wanted_set = frozenset(todo)
        while todo:
            before, start = len(todo), self._start(todo[0])
            for at, frames in self._fed(start, wanted_set, spoiled):
                for frame in frames:
                    yield from self._emit(frame, todo, spoiled, size_px)
                while todo and self._group(todo[0]) in spoiled:
                    yield todo[0], self._bad(RejectCode.DECODE_FAILED, todo[0], spoiled[self._group(todo.popleft())])
                if not todo or self._start(todo[0]) > max(at + 1, start):
                    break
            else:
                while todo:
                    yield (
                        todo[0],
                        self._bad(RejectCode.FRAME_MISMATCH, todo.popleft(), "the decoder returned no such frame"),
                    )
            assert len(todo) < before, "a sweep must settle at least one frame"

    def keyframe_at(self, pts: int) -> int:
        """Presentation time of the last keyframe at or before `pts` (the first shown frame where there is none)."""
        return max(self._key_pts[max(0, self._group(pts))], int(self.table.shown[0]))

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
                if packet.is_corrupt and pts is not None:
                    spoiled[self._group(pts)] = "the packet is marked as corrupt"
                try:
                    frames: Sequence[VideoFrame] = context.decode(packet)
                except FFmpegError as error:
                    frames = ()
                    if pts is not None:
                        spoiled[self._group(pts)] = str(error)
                yield at, frames
        except FFmpegError as error:  # the demuxer itself
            spoiled.update(dict.fromkeys(range(-1, len(self._keys)), str(error)))
            yield len(self.table.pts), ()

    def _packets_from(self, start: int) -> Iterator["Packet[VideoStream]"]:
        """Demux from packet `start`, or from a keyframe before it where the container seeks no better."""
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

    def _emit(self, frame: VideoFrame, todo: deque[int], spoiled: dict[int, str], size_px: int) -> Iterator[Item]:
        """Settle the wanted frames up to the one that came out."""
        if frame.pts is None:
            return
        while todo and todo[0] < frame.pts and self._group(todo[0]) not in spoiled:
            yield todo[0], self._bad(RejectCode.FRAME_MISMATCH, todo.popleft(), "the decoder returned no such frame")
        if todo and todo[0] <= frame.pts and frame.is_corrupt:
            spoiled[self._group(frame.pts)] = "the decoder marks the frame as corrupt"
        elif todo and todo[0] == frame.pts and self._group(frame.pts) not in spoiled:
            yield todo.popleft(), self._picture(frame, size_px)

    def _picture(self, frame: VideoFrame, size_px: int) -> Image:
        """Squash to (size, size, 3) RGB with swscale's bilinear filter (antialiased when shrinking), turn upright.

        The usual 4:2:0 video is shrunk first and turned to RGB afterwards, which costs 0.6 of doing both at once.
        With `resize` antialiased it becomes RGB first and goes through the filter of PIL.
        """
        self.rotation_deg = int(frame.rotation)
        if self.resize == "antialiased":
            return self._upright(squash(np.asarray(frame.to_ndarray(format="rgb24"), np.uint8), size_px))
        small = frame
        if frame.format.name == "yuv420p" and frame.color_range != ColorRange.JPEG:
            small = self._shrinker.reformat(frame, size_px, size_px, "yuv420p", interpolation=Interpolation.BILINEAR)
        small = self._scaler.reformat(small, size_px, size_px, "rgb24", interpolation=Interpolation.BILINEAR)
        return self._upright(np.asarray(small.to_ndarray(), np.uint8))

    def _upright(self, image: Image) -> Image:
        """Turn a square picture by the rotation of its frame."""
        return np.ascontiguousarray(np.rot90(image, k=round(self.rotation_deg / 90)))

    def _bad(self, code: RejectCode, pts: int, why: str) -> VideoError:
        """Describe what is wrong with one frame."""
        return VideoError(code, f"{self.path}: frame at {self.table.time_s(pts):.3f} s: {why}")
