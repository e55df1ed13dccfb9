"""Models in the store: one safetensors file each, and the facts that apply to all models of an entry.

The format does not detect flipped bits, so readers check the sha256 of the file first. Files have no metadata, because
the library writes it in varying order (docs/decisions/store.md).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.incoming import parse_json

Tensors = Mapping[str, NDArray[np.generic]]
HEADER_BYTES = 8
METADATA = "__metadata__"
TYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
"""Type in the format -> numpy type. https://github.com/huggingface/safetensors#format"""


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
        """Read and verify one model: parameter name -> read-only array of its original shape.

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


def parse_tensors(content: bytes) -> dict[str, NDArray[np.generic]]:
    """Read what `tensors_bytes` wrote, without a copy. The caller has verified the digest of `content`.

    Returns:
        Name -> array of its original shape: a read-only view of `content`.

    Raises:
        StoreError: not a safetensors file of the store.
    """
    try:
        start = HEADER_BYTES + int.from_bytes(content[:HEADER_BYTES], "little")
        header = parse_json(content[HEADER_BYTES:start], "the header")
        return {name: _view(content, start, header[name]) for name in sorted(set(header) - {METADATA})}
    except (InputError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise StoreError(f"{len(content):,} bytes are not a safetensors file: {error}") from error


def _view(content: bytes, start: int, header: Mapping[str, Any]) -> NDArray[np.generic]:
    """Return one array of a file whose data begin at byte `start`."""
    begin, end = header["data_offsets"]
    array: NDArray[np.generic] = np.ndarray(tuple(header["shape"]), TYPES[header["dtype"]], content, start + begin)
    if array.nbytes != end - begin:
        raise ValueError(f"{end - begin} bytes for an array of {array.nbytes}")
    return array
