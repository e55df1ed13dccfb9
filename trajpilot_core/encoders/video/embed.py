"""Encodes clips with a frozen video encoder in batches of one shape that fit into memory."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.config import FeatureConfig
from trajpilot_core.encoders.video.base import QueueingEncoder, VideoEncoder
from trajpilot_core.encoders.video.registry import load_video_encoder, video_encoder_spec
from trajpilot_core.memory import in_parts

log = logging.getLogger("trajpilot")
ClipFrames = Sequence[NDArray[np.uint8]] | NDArray[np.uint8]
"""Clips (T, size, size, 3) of RGB, as a list or as one array."""
Wait = Callable[[], NDArray[np.float16]]
"""Waits for the vectors of a batch and returns them, (B, width); may be called repeatedly."""


class HostBuffers:
    """Buffers for batches of clips, used in turn: on a GPU one is filled while the device reads the other.

    They are page-locked for a GPU, because uploads from other memory block the host.
    """

    def __init__(self, device: str) -> None:
        self._n = 2 if device.startswith("cuda") else 1
        self.page_locked = self._n > 1 and torch.cuda.is_available()
        self._used: list[tuple[NDArray[np.uint8], Wait]] = []

    def filled(self, clips: ClipFrames, batch: int) -> NDArray[np.uint8]:
        """Return (batch, T, size, size, 3): a copy of the clips, followed by black ones.

        It is the oldest buffer once its batch is done, or a new one if its shape differs.

        Args:
            clips: one to `batch` clips of equal shape (T, size, size, 3).
            batch: batch size of the encoder.
        """
        buffer: NDArray[np.uint8] | None = None
        shape = batch, *clips[0].shape
        if len(self._used) == self._n:
            buffer, wait = self._used.pop(0)
            wait()
        if buffer is None or buffer.shape != shape:
            buffer = torch.empty(shape, dtype=torch.uint8, pin_memory=self.page_locked).numpy()
        for number, clip in enumerate(clips):
            buffer[number] = clip
        buffer[len(clips) :] = 0
        return buffer

    def in_use(self, buffer: NDArray[np.uint8], wait: Wait) -> None:
        """Protect a buffer (batch, T, size, size, 3) of `filled` from reuse until `wait` has returned."""
        self._used.append((buffer, wait))


@dataclass
class Embedder:
    """A loaded encoder and its batches; `batch` is halved when memory runs out."""

    encoder: VideoEncoder
    config: FeatureConfig
    device: str
    batch: int

    def __post_init__(self) -> None:
        self._buffers = HostBuffers(self.device)

    @property
    def late(self) -> int:
        """Batches in flight while the host prepares the next one: 0 on a CPU, which does both."""
        return 1 if self.device.startswith("cuda") else 0

    @property
    def digest(self) -> str:
        """Digest of the encoder."""
        return self.encoder.digest

    @property
    def width(self) -> int:
        """Numbers per segment."""
        return self.encoder.width

    @property
    def tokens(self) -> int:
        """Parts of a segment's vector."""
        return self.encoder.tokens

    def embed(self, frames: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Encode clips (B, T, size, size, 3) of RGB; returns (B, width) float16; see `begin`."""
        return self.begin(frames)()

    def begin(self, clips: ClipFrames) -> Wait:
        """Pass clips (T, size, size, 3) to the encoder; return a function that waits for vectors (B, width), float16.

        Clips of a list are copied and may be freed. On a GPU the call returns before the vectors are computed.

        Incomplete batches are filled with black clips, so that all calls have one shape and a segment's vector does not
        depend on its neighbours. When memory runs out, the batch is halved permanently and the call repeated in parts.

        Raises InputError: one clip alone does not fit into memory.
        """
        what = f"one clip of {self.config.n_frames} frames of {self.config.size_px} px"
        parts = in_parts(
            len(clips),
            self.batch,
            lambda rows: (self._begin_full(clips[rows]), rows.stop - rows.start),
            f"{what} does not fit into the memory of {self.device} with {self.config.model}",
            "choose a smaller model with --set features.model",
            self._halved,
        )
        return lambda: np.concatenate([wait()[:n] for wait, n in parts])

    def _begin_full(self, part: ClipFrames) -> Wait:
        """Pass at most `batch` clips, filled up to `batch`, to the encoder."""
        if isinstance(part, np.ndarray) and len(part) == self.batch and not self._buffers.page_locked:
            return self._start(part)
        full = self._buffers.filled(part, self.batch)
        wait = self._start(full)
        self._buffers.in_use(full, wait)
        return wait

    def _start(self, full: NDArray[np.uint8]) -> Wait:
        """Pass a whole batch to the encoder, which may queue it."""
        if isinstance(self.encoder, QueueingEncoder):
            return self.encoder.begin(full)
        vectors = self.encoder.embed(full)
        return lambda: vectors

    def _halved(self, batch: int) -> None:
        """Continue with a smaller batch; the first time with a warning."""
        level = logging.WARNING if self.batch == self.config.batch else logging.DEBUG
        self.batch = batch
        log.log(level, "features: out of memory; continuing with batches of %d", batch)


def load_embedder(cfg: FeatureConfig, device: str, scratch: Path) -> Embedder:
    """Load the encoder of a configuration; one that generates its weights writes them to `scratch`.

    Raises CheckpointError: no checkpoint is set, or it cannot be used.
    """
    return Embedder(load_video_encoder(cfg, device, scratch), cfg, device, cfg.batch)


@contextmanager
def torch_threads(cfg: FeatureConfig) -> Iterator[None]:
    """Set the encoder's number of torch threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(video_encoder_spec(cfg).n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
