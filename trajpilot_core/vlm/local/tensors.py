"""What the headers of safetensors files say of the tensors in them. Imports no torch; no tensor is read.

Format: https://github.com/huggingface/safetensors#format
"""

import json
import math
from pathlib import Path
from typing import NamedTuple

from trajpilot_core.errors import InputError

HEADER_BYTES = 8
"""The first bytes of a file: the length of its header."""


class TensorFacts(NamedTuple):
    """One tensor."""

    shape: tuple[int, ...]
    n_bytes: int

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def tensors_of(path: Path) -> dict[str, TensorFacts]:
    """Return name -> tensor of a file, as its header states them.

    Raises:
        InputError: the file is longer or shorter than that, or has no such header.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(HEADER_BYTES), "little")
        try:
            header = json.loads(file.read(length)) if length < size else {}
            ends = [row["data_offsets"][1] for name, row in header.items() if name != "__metadata__"]
            found = {
                name: TensorFacts(tuple(map(int, row["shape"])), row["data_offsets"][1] - row["data_offsets"][0])
                for name, row in header.items()
                if name != "__metadata__"
            }
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise InputError(f"{path} is no safetensors file ({error!r}); copy it again") from error
    stated = max(ends, default=0)
    if not stated or HEADER_BYTES + length + stated != size:
        raise InputError(f"{path} has {size:,} bytes, but its header states {HEADER_BYTES + length + stated:,}")
    return found
