"""Encodes clips with a frozen video encoder in batches of one shape that fit into memory."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.config import FeatureConfig
from trajpilot_core.encoders.video.base import VideoEncoder
from trajpilot_core.encoders.video.registry import load_video_encoder, video_encoder_spec
from trajpilot_core.memory import in_parts

log = logging.getLogger("trajpilot")
ClipFrames = Sequence[NDArray[np.uint8]] | NDArray[np.uint8]
"""Clips (T, size, size, 3) of RGB, as a list or as one array."""


@dataclass
class Embedder:
    """A loaded encoder and its batches; `batch` is halved when memory runs out."""

    encoder: VideoEncoder
    config: FeatureConfig
    batch: int

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

    def embed(self, clips: ClipFrames) -> NDArray[np.float16]:
        """Encode clips (T, size, size, 3) of RGB; returns (B, width) float16.

        Incomplete batches are filled with black clips, so that all calls have one shape and a segment's vector does not
        depend on its neighbours. When memory runs out, the batch is halved permanently and the call repeated in parts.

        Raises InputError: one clip alone does not fit into memory.
        """
        return np.concatenate(in_parts(len(clips), self.batch, lambda rows: self._full(clips[rows]), self._halved))

    def _full(self, part: ClipFrames) -> NDArray[np.float16]:
        """Encode at most `batch` clips, filled up to `batch`."""
        full = np.zeros((self.batch, *part[0].shape), np.uint8)
        for number, clip in enumerate(part):
            full[number] = clip
        return self.encoder.embed(full)[: len(part)]

    def _halved(self, batch: int) -> None:
        """Continue with a smaller batch; the first time with a warning."""
        level = logging.WARNING if self.batch == self.config.batch else logging.DEBUG
        self.batch = batch
        log.log(level, "features: out of memory; continuing with batches of %d", batch)


def load_embedder(cfg: FeatureConfig, device: str, scratch: Path) -> Embedder:
    """Load the encoder of a configuration; one that generates its weights writes them to `scratch`.

    Raises CheckpointError: no checkpoint is set, or it cannot be used.
    """
    return Embedder(load_video_encoder(cfg, device, scratch), cfg, cfg.batch)


@contextmanager
def torch_threads(cfg: FeatureConfig) -> Iterator[None]:
    """Set the encoder's number of torch threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(video_encoder_spec(cfg).n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
