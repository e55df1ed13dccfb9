"""What a frozen video encoder is (clips -> vectors), and what is known of it without loading it. Imports no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schemas.config import FeatureConfig


class VideoEncoder(Protocol):
    """A frozen video encoder. Clips come as FeatureConfig says: n_frames of size_px, squashed by `resize`."""

    @property
    def digest(self) -> str:
        """Over the weights and everything that decides how frames become a vector, preprocessing included."""
        ...

    @property
    def width(self) -> int:
        """Numbers per clip."""
        ...

    @property
    def tokens(self) -> int:
        """Parts of a clip's vector, of equal width."""
        ...

    def embed(self, frames: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Return (B, width) float16 of clips (B, T, size, size, 3) of upright RGB.

        A clip's vector must not depend on the others. torch.OutOfMemoryError is understood: fewer clips come next.
        """
        ...


@runtime_checkable
class QueueingEncoder(VideoEncoder, Protocol):
    """A video encoder that can leave its work to a device and come back at once."""

    def begin(self, frames: NDArray[np.uint8]) -> Callable[[], NDArray[np.float16]]:
        """Queue the clips of `embed`; what is returned waits for their vectors, and returns the same when called again.

        `frames`, (B, T, size, size, 3), must stay as they are until then; the vectors are (B, width).
        """
        ...


@dataclass(frozen=True)
class VideoEncoderSpec:
    """One kind of video encoder: what the registry, the stage `features` and doctor ask of it."""

    title: str
    """As it is printed."""
    models: tuple[str, ...]
    """FeatureConfig.model of its sizes."""
    load: Callable[[FeatureConfig, str, Path], VideoEncoder]
    """(settings, device, private folder) -> the encoder; imports what it needs when it is called."""
    has_weights: bool = True
    """Whether FeatureConfig.checkpoint has to name a file; else it may."""
    file_fault: Callable[[FeatureConfig, Path], tuple[str, str] | None] = lambda cfg, path: None
    """(settings, file of weights) -> what speaks against it by name and size, and what to do; None: nothing."""
    n_threads: int | None = None
    """Threads of torch while it encodes; None: as many as there are."""
