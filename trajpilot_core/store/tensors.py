"""safetensors as the store writes and reads them: named arrays and one JSON document of metadata.

The library writes metadata in an order that differs from call to call, so that all of it goes under one key; and it
does not notice a flipped bit, so that readers check the sha256 of the file first (docs/decisions/store.md).
"""

import json
from collections.abc import Mapping

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from schemas.base import canonical_json
from trajpilot_core.errors import StoreError

METADATA_KEY = "trajpilot"
HEADER_BYTES = 8


def tensors_bytes(tensors: Mapping[str, NDArray[np.generic]], metadata: Mapping[str, str]) -> bytes:
    """Serialise named arrays; equal arrays and metadata give equal bytes.

    Args:
        tensors: name -> array of any shape.
        metadata: text to text.
    """
    ordered = {name: np.asarray(tensors[name], order="C") for name in sorted(tensors)}
    content: bytes = safetensors.numpy.save(ordered, {METADATA_KEY: canonical_json(dict(metadata))})
    return content


def parse_tensors(content: bytes) -> tuple[dict[str, NDArray[np.generic]], dict[str, str]]:
    """Read back what `tensors_bytes` wrote. The caller has checked the digest of `content` before.

    Returns:
        name -> array of the shape that was written, and the metadata.

    Raises:
        StoreError: no safetensors file, or not one of the store's.
    """
    try:
        tensors = safetensors.numpy.load(content)
        length = int.from_bytes(content[:HEADER_BYTES], "little")
        header = json.loads(content[HEADER_BYTES : HEADER_BYTES + length])
        metadata = json.loads(header.get("__metadata__", {}).get(METADATA_KEY, "{}"))
    except (SafetensorError, ValueError) as error:
        raise StoreError(f"{len(content):,} bytes are no safetensors file: {error}") from error
    return {name: tensors[name] for name in sorted(tensors)}, metadata
