"""Files with the weights of EgoVLPv2: the released one, of which nothing is run, and our copy of its text part.

The released `EgoVLPv2.pth` holds its authors' configuration object next to the weights. What its pickle names is
replaced by an object that takes anything and does nothing (INERT); any other name is refused. Why, and what is
known of the file: docs/decisions/text-encoders.md.
"""

import hashlib
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from trajpilot_core.encoders.text.base import CHECKPOINT, CONVERTED, PATTERNS
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.store.files import naming_failures

TEXT_PARTS = ("text_model.", "txt_proj.")
FUSION = ("alpha_t2i", "crossattention_t2i")
"""Layers that only video input uses."""
INERT = (
    "parse_config.ConfigParser",
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "pathlib.PureWindowsPath",
    "numpy.dtype",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
)
"""What the authors' trainer writes next to the weights: its options, paths, and the best value so far."""


class Inert:
    """Stands in a pickle for an object that is not wanted: takes anything, does nothing."""

    def __new__(cls, *ignored: object) -> "Inert":
        """Return an empty object."""
        return super().__new__(cls)

    def __init__(self, *ignored: object) -> None:
        pass

    def __setstate__(self, ignored: object) -> None:
        """Forget the state."""


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the weights of a released or a converted file, without the `module.` prefix of distributed training.

    Returns:
        Parameter name -> tensor, with the shape that it was saved with.

    Raises CheckpointError: the file is damaged, has no weights, or needs what is not allowed; the message lists it.
    """
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise CheckpointError(f"{path} cannot be read: {error}; convert it again") from error
    with torch.serialization.safe_globals([(Inert, name) for name in INERT]):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (UnpicklingError, RuntimeError, EOFError, TypeError, AttributeError) as error:
            first = str(error).split("\n", 1)[0]
            raise CheckpointError(f"{path} cannot be read safely ({not_allowed(path)}): {first}") from error
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} has no state_dict; expected the released {CHECKPOINT}")
    return {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, Tensor)}


def not_allowed(path: Path) -> str:
    """Name what a file asks for and is not allowed, as far as it can be scanned; nothing is loaded."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except (UnpicklingError, RuntimeError, ValueError, EOFError, OSError):
        return "not a torch file of today's format"
    return f"it asks for {', '.join(sorted(names))}, not allowed" if names else "it asks for nothing unknown"


def is_stock(key: str) -> bool:
    """Whether a text key belongs to plain roberta-base: no fusion layer, no pooler, no buffer of positions."""
    return not (any(part in key for part in FUSION) or key == "embeddings.position_ids" or key.startswith("pooler."))


def text_part(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the text tower and its projection out of all weights, names as they are."""
    return {
        key: value
        for key, value in state.items()
        if key.startswith(TEXT_PARTS) and is_stock(key.removeprefix("text_model."))
    }


def write_converted(part: Mapping[str, Tensor], source: Path, target: Path) -> dict[str, str]:
    """Write the text part as safetensors, whole or not at all; returns what its header says of its source.

    Raises InputError: the target is there, or has a name by which it would not be found.
    """
    if target.exists():
        raise InputError(f"{target} is there already; remove it, or name another file")
    if not target.match(PATTERNS[0]):
        raise InputError(f"{target.name} would not be found; name it {CONVERTED}")
    with source.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    about = {"format": "pt", "what": "text tower and projection of EgoVLPv2", "source": source.name}
    about["source_sha256"] = digest
    tensors: dict[str, Any] = {name: value.clone().contiguous() for name, value in sorted(part.items())}
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    with naming_failures("write", target):
        try:
            save_file(tensors, temporary, metadata=about)
            temporary.chmod(source.stat().st_mode)  # the library's own is for one user
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    return about
