"""The interface of frozen video encoders (clips -> vectors), and their specs. Does not import torch."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.config import FeatureConfig
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.incoming import parse_json

INDEX = ".safetensors.index.json"
"""End of the name of the index of sharded safetensors."""


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


def checkpoint_files(checkpoint: str) -> tuple[Path, ...]:
    """Return the absolute path of a file of weights, and of the shards that it names if it is an index.

    Raises CheckpointError: the index cannot be read, or names a file outside its folder.
    """
    path = Path(checkpoint).absolute()
    if not (path.name.endswith(INDEX) and path.is_file()):
        return (path,)
    try:
        names = sorted({str(name) for name in parse_json(path.read_bytes(), path.name)["weight_map"].values()})
    except (InputError, OSError, AttributeError, LookupError, TypeError) as error:
        raise CheckpointError(f"{path} is no index of sharded safetensors: {error!r}; download it again") from error
    outside = [name for name in names if not name.endswith(".safetensors") or Path(name).name != name]
    if outside or not names:
        raise CheckpointError(f"{path} names {outside or 'no shard'}; only .safetensors files next to it are read")
    return (path, *(path.parent / name for name in names))


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
