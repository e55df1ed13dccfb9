"""Frames by presentation time with decord, selectable in place of PyAV.

decord addresses frames by index, so indices are derived from the packet table, and decord's time of each index is
compared before a frame is accepted. Streams with pre-roll or open groups of pictures are refused, because its indices
shift there (docs/decisions/video-backend.md).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from av.error import FFmpegError
from av.video.frame import VideoFrame

from schemas.rejects import RejectCode
from trajpilot_core.errors import InputError
from trajpilot_core.video.pyav_backend import DecodedFrame, PyavReader, Shape, turn_deg
from trajpilot_core.video.table import VideoError

CHUNK = 16
"""Frames per call of decord; bounds the full-size pictures in memory."""


class DecordReader(PyavReader):
    """One open video whose table is read by PyAV and whose pictures by decord."""

    def __init__(self, path: str, shape: Shape | None = None) -> None:
        try:
            import decord
        except ImportError as error:
            raise InputError(
                "features.backend is decord, which is not installed (it has wheels for x86-64 only); "
                "use --set features.backend=pyav"
            ) from error
        super().__init__(path, shape)
        self._error: type[Exception] = decord.DECORDError
        try:
            self.container.seek(0)
            first = next(self.container.decode(self.stream), None)
            if first is not None:
                turn_deg(first)  # refuse what `PyavReader` does: decord applies any matrix
            self._video = decord.VideoReader(path, ctx=decord.cpu(0), num_threads=1)
            self._refuse_shifted()
        except (self._error, FFmpegError, RuntimeError) as error:
            self.close()
            raise self._failed(error) from error
        except VideoError:
            self.close()
            raise

    def decode(self, wanted: Sequence[int], size_px: int) -> Iterator[DecodedFrame]:
        """Yield (pts, image (size, size, 3) uint8 RGB, or its fault) for rising presentation times, ticks."""
        for begin in range(0, len(wanted), CHUNK):
            part = list(wanted[begin : begin + CHUNK])
            index = np.searchsorted(self.table.shown, part)
            try:
                pictures = self._video.get_batch(index.tolist()).asnumpy()
            except (self._error, IndexError) as error:
                fault = self._failed(error)
                yield from ((pts, fault) for pts in part)
                continue
            decord_s = self._video.get_frame_timestamp(index)[:, 0].tolist()
            for pts, time_s, picture in zip(part, decord_s, pictures, strict=True):
                if abs(time_s - self.table.time_s(pts)) > 0.5 / self.table.fps:  # it also counts from the first frame
                    yield pts, self._bad(RejectCode.FRAME_MISMATCH, pts, f"decord returned the frame at {time_s:.4f} s")
                else:
                    yield pts, self._picture(VideoFrame.from_ndarray(picture, format="rgb24"), size_px)

    def _refuse_shifted(self) -> None:
        """Refuse a file with frames that decord counts and nobody sees, or shows in another order."""
        n_shown, pts = len(self.table.shown), self.table.pts.tolist()
        n_frames, has_preroll = len(self._video), len(pts) > n_shown
        has_open_group = any(run >= 0 and at < self._key_pts[run] for run, at in zip(self._run, pts, strict=True))
        if has_preroll or has_open_group or n_frames != n_shown:
            raise VideoError(
                RejectCode.FRAME_MISMATCH,
                f"{self.path}: decord counts {n_frames} frames, the packets {n_shown}, pre-roll {has_preroll}, open "
                f"groups of pictures {has_open_group}; its indices cannot be trusted here; "
                "use --set features.backend=pyav",
            )

    def _failed(self, error: Exception) -> VideoError:
        """Return the fault of an error of a decoder."""
        what, _, _ = str(error).partition("\n")  # the rest is a stack of decord's
        return VideoError(RejectCode.DECODE_FAILED, f"{self.path}: decord: {what}")
