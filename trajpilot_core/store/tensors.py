"""Models in the store: one safetensors file each, and the facts that apply to all models of an entry.

The format does not detect flipped bits, so readers check the sha256 of the file first. Files have no metadata, because
the library writes it in varying order (docs/decisions/store.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from trajpilot_core.errors import StoreError

Tensors = Mapping[str, NDArray[np.generic]]


@dataclass(frozen=True)
class Models:
    """The models of one entry. Each is read on demand and not cached."""

    about: Mapping[str, str]
    """Facts about all of them: settings, shapes, takes that they were fitted on."""
    keys: tuple[str, ...]
    """Their keys, sorted."""
    open: Callable[[str], Tensors]
    """Key -> its parameters."""

    def read(self, key: str) -> Tensors:
        """Read and verify one model: parameter name -> array of its original shape.

        Raises:
            StoreError: there is no such model, or its file is damaged.
        """
        if key not in self.keys:
            listed = ", ".join(self.keys) or "nothing"
            raise StoreError(f"no model {key!r} in the entry, which has {listed}; run the stage that writes it")
        return self.open(key)


def tensors_bytes(tensors: Tensors) -> bytes:
    """Serialise named arrays of any shape; equal arrays give equal bytes."""
    content: bytes = safetensors.numpy.save({name: np.asarray(tensors[name], order="C") for name in sorted(tensors)})
    return content


def parse_tensors(content: bytes) -> Tensors:
    """Return what `tensors_bytes` wrote: name -> array of its original shape.

    Raises:
        StoreError: not a safetensors file of the store.
    """
    try:
        tensors: Tensors = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError) as error:
        raise StoreError(f"{len(content):,} bytes are not a safetensors file: {error}") from error
    return tensors
