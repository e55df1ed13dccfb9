"""Clips through a frozen video encoder in batches of one shape, whatever memory there is."""

import logging
from collections.abc import Iterator
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


@dataclass
class Embedder:
    """A loaded encoder and how it is fed; `batch` shrinks when memory runs out."""

    encoder: VideoEncoder
    config: FeatureConfig
    device: str
    batch: int

    @property
    def digest(self) -> str:
        """Which encoder it is."""
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
        """Encode clips (B, T, size, size, 3) of RGB, B at most `batch`; returns (B, width) float16.

        A part batch is filled up with black clips, so that every call has one shape and a segment's vector does not
        depend on its neighbours. When memory runs out the batch is halved for good, and the call repeated in parts.

        Raises:
            InputError: one clip alone does not fit into memory.
        """
        what = f"one clip of {self.config.n_frames} frames of {self.config.size_px} px"
        parts = in_parts(
            len(frames),
            self.batch,
            lambda rows: self._embed_full(frames[rows]),
            f"{what} does not fit into the memory of {self.device} with {self.config.model}",
            "choose a smaller model with --set features.model",
            self._halved,
        )
        return np.concatenate(parts)

    def _embed_full(self, part: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Encode at most `batch` clips, filled up to `batch`."""
        full = np.zeros((self.batch, *part.shape[1:]), np.uint8)
        full[: len(part)] = part
        return self.encoder.embed(full)[: len(part)]

    def _halved(self, batch: int) -> None:
        """Go on with a smaller batch, and say so the first time."""
        level = logging.WARNING if self.batch == self.config.batch else logging.DEBUG
        self.batch = batch
        log.log(level, "features: out of memory; going on with batches of %d", batch)


def load_embedder(cfg: FeatureConfig, device: str, scratch: Path) -> Embedder:
    """Load the encoder of a configuration; one that makes its own weights writes them to `scratch`.

    Raises:
        CheckpointError: no checkpoint is configured, or it cannot be used.
    """
    return Embedder(load_video_encoder(cfg, device, scratch), cfg, device, cfg.batch)


@contextmanager
def torch_threads(cfg: FeatureConfig) -> Iterator[None]:
    """Give torch as many threads as the encoder wants, for as long as the block lasts."""
    before = torch.get_num_threads()
    torch.set_num_threads(video_encoder_spec(cfg).n_threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
