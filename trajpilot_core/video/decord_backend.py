"""Frames by presentation time with decord, selectable in place of PyAV.

decord addresses frames by index, so indices are derived from the packet table, and decord's time of each index is
compared before a frame is accepted. Streams with pre-roll or open groups of pictures are refused, because its indices
shift there (docs/decisions/video-backend.md).
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

import av
import numpy as np
from av.error import FFmpegError
from av.video.reformatter import Interpolation, VideoReformatter

from schemas.rejects import RejectCode
from trajpilot_core.errors import InputError
from trajpilot_core.video.pyav_backend import DecodedFrame, turn
from trajpilot_core.video.resize import Shape
from trajpilot_core.video.table import VideoError, frame_table, open_video

CHUNK = 16
"""Frames per call of decord; bounds the full-size pictures in memory."""


class DecordReader:
    """One open video. Satisfies `decode.FrameReader`."""

    def __init__(self, path: str, shape: Shape | None = None) -> None:
        self.path, self.shape = path, shape
        container, stream = open_video(path)
        with closing(container):
            self.table = frame_table(path, container, stream)
            try:  # decord rotates pictures but does not mirror them
                container.seek(0)
                first = next(container.decode(stream), None)
            except FFmpegError as error:
                what = f"{path}: its first picture does not decode: {error}"
                raise VideoError(RejectCode.DECODE_FAILED, what) from error
            if first is not None and turn(first)[1]:
                what = f"{path} is stored mirrored; use --set features.backend=pyav"
                raise VideoError(RejectCode.FRAME_MISMATCH, what)
        try:
            import decord
        except ImportError as error:
            raise InputError(
                "features.backend is decord, which is not installed (it has wheels for x86-64 only); "
                "use --set features.backend=pyav"
            ) from error
        self._scaler, self._error = VideoReformatter(), decord.DECORDError
        try:
            self._video = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
        except (decord.DECORDError, RuntimeError) as error:
            raise VideoError(RejectCode.DECODE_FAILED, f"{path}: decord: {str(error).splitlines()[0]}") from error
        n_frames = len(self._video)
        if self.table.has_preroll or self.table.has_open_group or n_frames != len(self.table.shown):
            raise VideoError(
                RejectCode.FRAME_MISMATCH,
                f"{path}: decord counts {n_frames} frames, the packets {len(self.table.shown)}, pre-roll "
                f"{self.table.has_preroll}, open groups of pictures {self.table.has_open_group}; its "
                "indices cannot be trusted here; use --set features.backend=pyav",
            )

    def close(self) -> None:
        """Close the file."""
        del self._video

    def decode(self, wanted: Sequence[int], size_px: int) -> Iterator[DecodedFrame]:
        """Yield (pts, image (size, size, 3) uint8 RGB or VideoError) for rising presentation times (ticks)."""
        for begin in range(0, len(wanted), CHUNK):
            part = list(wanted[begin : begin + CHUNK])
            index = np.searchsorted(self.table.shown, part)
            try:
                pictures = self._video.get_batch(index.tolist()).asnumpy()
            except (self._error, IndexError) as error:
                fault = VideoError(RejectCode.DECODE_FAILED, f"{self.path}: decord: {str(error).splitlines()[0]}")
                yield from ((pts, fault) for pts in part)
                continue
            decord_s = self._video.get_frame_timestamp(index)[:, 0].tolist()
            for pts, time_s, picture in zip(part, decord_s, pictures, strict=True):
                wanted_s = self.table.time_s(pts)  # decord also counts from the first frame
                if abs(time_s - wanted_s) > 0.5 / self.table.fps:
                    what = f"{self.path}: decord returned the frame at {time_s:.4f} s for {wanted_s:.4f} s"
                    yield pts, VideoError(RejectCode.FRAME_MISMATCH, what)
                elif self.shape is not None:
                    yield pts, self.shape(picture, size_px)
                else:
                    rgb = av.VideoFrame.from_ndarray(picture, format="rgb24")
                    small = self._scaler.reformat(rgb, size_px, size_px, "rgb24", interpolation=Interpolation.BILINEAR)
                    yield pts, small.to_ndarray().astype(np.uint8, copy=False)
