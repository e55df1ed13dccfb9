"""Files with the weights of EgoVLPv2: the released one, whose code is not run, and our copy of its text part.

The released `EgoVLPv2.pth` contains its authors' configuration object next to the weights. Known names in its pickle
(INERT) are replaced by an object that accepts anything and does nothing; any other name is refused. Reasons, and
details of the file: docs/decisions/text-encoders.md.
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
"""Objects that the authors' trainer writes next to the weights: its options, paths, and the best value so far."""


class Inert:
    """Replacement for an unwanted object in a pickle: accepts anything, does nothing."""

    def __new__(cls, *ignored: object) -> "Inert":
        """Return an empty object."""
        return super().__new__(cls)

    def __init__(self, *ignored: object) -> None:
        pass

    def __setstate__(self, ignored: object) -> None:
        """Ignore the state."""


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the weights of a released or a converted file, without the `module.` prefix of distributed training.

    Returns:
        Parameter name -> tensor, in its saved shape.

    Raises CheckpointError: the file is damaged, has no weights, or needs objects that are not allowed; lists them.
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
    """Return which objects a file needs that are not allowed, as far as it can be scanned; nothing is loaded."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except (UnpicklingError, RuntimeError, ValueError, EOFError, OSError):
        return "not a torch file of the current format"
    return f"it needs {', '.join(sorted(names))}, not allowed" if names else "it needs no unknown objects"


def is_stock(key: str) -> bool:
    """Return whether a text key belongs to plain roberta-base: no fusion layer, pooler or buffer of positions."""
    return not (any(part in key for part in FUSION) or key == "embeddings.position_ids" or key.startswith("pooler."))


def text_part(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the text tower and its projection from all weights, with unchanged names."""
    return {
        key: value
        for key, value in state.items()
        if key.startswith(TEXT_PARTS) and is_stock(key.removeprefix("text_model."))
    }


def write_converted(part: Mapping[str, Tensor], source: Path, target: Path) -> dict[str, str]:
    """Write the text part atomically as safetensors; return its header, which names the source.

    Raises InputError: the target exists, or its name does not match the patterns of weights.
    """
    if target.exists():
        raise InputError(f"{target} exists already; delete it, or name another file")
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
            temporary.chmod(source.stat().st_mode)  # the library's mode is for one user only
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    return about
