"""Models as the store writes and reads them: one safetensors file each, and what holds for all of an entry.

The format does not notice a flipped bit, so that readers check the sha256 of the file first. A file has no metadata:
the library writes it in an order that differs from call to call (docs/decisions/store.md).
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
"""Name of a type in the format -> that of numpy. https://github.com/huggingface/safetensors#format"""


@dataclass(frozen=True)
class Models:
    """The models of one entry. Each is read when it is asked for, and nothing of it is kept."""

    about: Mapping[str, str]
    """What holds for all of them: settings, shapes, takes that they were fitted on."""
    keys: tuple[str, ...]
    """Their keys, sorted."""
    open: Callable[[str], Tensors]
    """Key -> its parameters."""

    def read(self, key: str) -> Tensors:
        """Read one model, verified: parameter name -> array of the shape that was written, read-only.

        Raises:
            StoreError: there is no such model, or its file is damaged.
        """
        if key not in self.keys:
            held = ", ".join(self.keys) or "nothing"
            raise StoreError(f"no model {key!r} in the entry, which holds {held}; run the stage that writes it")
        return self.open(key)


def tensors_bytes(tensors: Tensors) -> bytes:
    """Serialise named arrays of any shape; equal arrays give equal bytes."""
    content: bytes = safetensors.numpy.save({name: np.asarray(tensors[name], order="C") for name in sorted(tensors)})
    return content


def parse_tensors(content: bytes) -> dict[str, NDArray[np.generic]]:
    """Read back what `tensors_bytes` wrote, without a copy. The caller has checked the digest of `content` before.

    Returns:
        Name -> array of the shape that was written: a view of `content`, read-only.

    Raises:
        StoreError: no safetensors file, or not one of the store's.
    """
    try:
        start = HEADER_BYTES + int.from_bytes(content[:HEADER_BYTES], "little")
        header = parse_json(content[HEADER_BYTES:start], "the header")
        return {name: _view(content, start, header[name]) for name in sorted(set(header) - {METADATA})}
    except (InputError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise StoreError(f"{len(content):,} bytes are no safetensors file: {error}") from error


def _view(content: bytes, start: int, told: Mapping[str, Any]) -> NDArray[np.generic]:
    """Return one array of a file whose data begin at byte `start`."""
    begin, end = told["data_offsets"]
    array: NDArray[np.generic] = np.ndarray(tuple(told["shape"]), TYPES[told["dtype"]], content, start + begin)
    if array.nbytes != end - begin:
        raise ValueError(f"{end - begin} bytes of an array of {array.nbytes}")
    return array
