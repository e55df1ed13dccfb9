"""The interface of frozen video encoders (clips -> vectors), and their specs. Does not import torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.config import FeatureConfig
from trajpilot_core.arrays import Array


class SegmentVector(NamedTuple):
    """The feature of a segment: of a clip, or of the rows of a released file."""

    vector: NDArray[np.float16] | NDArray[np.float32]
    """(D,)."""
    times_s: Array
    """Of its frames, (T,); or (R, 2), the windows of the rows."""


class VideoEncoder(Protocol):
    """A frozen video encoder. Clips follow FeatureConfig: n_frames of size_px, squashed by `resize`."""

    @property
    def digest(self) -> str:
        """Digest of the weights and of everything else that affects the vectors, including preprocessing."""

    @property
    def width(self) -> int:
        """Numbers per clip."""

    @property
    def tokens(self) -> int:
        """Parts of a clip's vector, of equal width."""

    def embed(self, frames: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Return (B, width) float16 of clips (B, T, size, size, 3) of upright RGB.

        A clip's vector must not depend on the others. After torch.OutOfMemoryError the caller passes fewer clips.
        """


@dataclass(frozen=True)
class VideoEncoderSpec:
    """One kind of video encoder: its properties for the registry, the stage `features` and doctor."""

    title: str
    """Printed name."""
    models: tuple[str, ...]
    """Values of FeatureConfig.model for its sizes."""
    load: Callable[[FeatureConfig, str, Path], VideoEncoder]
    """(settings, device, private folder) -> the encoder; imports its dependencies when called."""
    has_weights: bool = True
    """Whether FeatureConfig.checkpoint is required; else it is optional."""
    file_fault: Callable[[FeatureConfig, Path], tuple[str, str] | None] = lambda cfg, path: None
    """(settings, file of weights) -> fault by its name and size, and its remedy; None: no fault."""
    n_threads: int | None = None
    """Threads of torch while it encodes; None: all."""
