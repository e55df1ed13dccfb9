"""Load V-JEPA weights from the released files: safe, strict, checked by digest. Layout: docs/decisions/vjepa.md."""

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from schemas.vjepa import Release
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder
from trajpilot_core.errors import CheckpointError

M = TypeVar("M", bound=nn.Module)
LONGEST_FAULT = 1_500
"""Characters of torch's own words about weights that do not fit."""
ENCODER_KEYS = ("target_encoder", "ema_encoder", "encoder")
"""Which part of a training checkpoint is used, best first: the averaged weights before the trained ones."""
PREFIXES = ("module.", "backbone.")
"""Left in the names by the wrappers of the distributed training."""
WRAPPERS = rf"^({'|'.join(map(re.escape, PREFIXES))})+"
TRANSFORMERS_PATCH = "encoder.embeddings.patch_embeddings.proj.weight"
"""By this name the layout of transformers is known."""


def load_encoder(path: str, model: str, interpolate_rope: bool, sha256: str | None = None) -> tuple[VjepaEncoder, str]:
    """Build the encoder `model` (see SIZES) with the weights of a .pt or .safetensors file, in eval mode, float32.

    The release (2.0 or 2.1) is read off the parameter names. Returns (encoder, sha256 of the file).

    Raises CheckpointError: no such file, another digest, an unsafe or unknown layout, or weights of another size.
    """
    found = file_sha256(path)
    if sha256 is not None and found != sha256:
        raise CheckpointError(f"{path} has sha256 {found}, expected was {sha256}; download it again")
    state = encoder_state(read_checkpoint(path), path)
    release: Release = "2.1" if "norms_block.0.weight" in state else "2.0"
    spec = dataclasses.replace(SIZES[model], release=release, interpolate_rope=interpolate_rope)
    width = len(state["patch_embed.proj.weight"])
    depth = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    fits = [name for name, one in SIZES.items() if (one.width, one.depth) == (width, depth)]
    hint = "".join(f": set features.model={name}" for name in fits)
    fault = f"{path} does not fit {model} (V-JEPA {release}); they are {width} wide and {depth} deep{hint}"
    return frozen_with(lambda: VjepaEncoder(spec), state, fault), found


def frozen_with(build: Callable[[], M], state: Mapping[str, Tensor], fault: str) -> M:
    """Return a model with the weights of a released file, each of them and no other, in eval mode, float32.

    Args:
        build: makes the model; no memory is taken for the weights that it begins with.
        fault: what is wrong, and what to do, where they do not fit.

    Raises CheckpointError: they do not fit.
    """
    with torch.device("meta"):
        model = build()
    try:
        model.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        text = str(error).replace("\n\t", " ")
        raise CheckpointError(f"{fault}: {text[:LONGEST_FAULT]}") from error
    return model.float().eval().requires_grad_(False)


def file_sha256(path: str) -> str:
    """Return the sha256 (hex) of a file. Raises CheckpointError: it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        what = (
            f"cannot read the checkpoint {path}: {error.strerror}; "
            "give the downloaded file with --set features.checkpoint"
        )
        raise CheckpointError(what) from error


def read_checkpoint(path: str) -> dict[str, Any]:
    """Read a .safetensors file, or a .pt file with weights_only=True, which runs no code of the file.

    Raises CheckpointError: the file is damaged, holds more than tensors, or is no dictionary.
    """
    try:
        if path.endswith(".safetensors"):
            return dict(load_file(path))
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, SafetensorError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path} was refused: {first}; only tensors in a zip-format .pt or .safetensors"
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds a {type(content).__name__}; a dictionary of tensors was expected")
    return content


def encoder_state(content: dict[str, Any], path: str) -> dict[str, Tensor]:
    """Pick the encoder's parameters out of a checkpoint and strip the wrappers' prefixes.

    Files of release 2.0 still hold the `pos_embed` of their first training, which rotary positions replaced: left out.

    Raises CheckpointError: unknown layout; the message lists the keys that were found.
    """
    part: Any = next((content[key] for key in ENCODER_KEYS if key in content), content)
    if not isinstance(part, dict) or not all(isinstance(value, Tensor) for value in part.values()):
        raise CheckpointError(
            f"{path} has an unknown layout: found {_names(content)}, expected one of {list(ENCODER_KEYS)} "
            "with tensors, or the tensors themselves"
        )
    state = {re.sub(WRAPPERS, "", name): value for name, value in part.items()}
    if TRANSFORMERS_PATCH in part or f"vjepa2.{TRANSFORMERS_PATCH}" in part:
        state = from_transformers(state)
    if "norms_block.3.weight" not in state:
        state.pop("pos_embed", None)
    if "patch_embed.proj.weight" not in state or not {"norm.weight", "norms_block.3.weight"} & state.keys():
        raise CheckpointError(f"{path} is no V-JEPA encoder: found {_names(part)}")
    return state


def from_transformers(part: dict[str, Tensor]) -> dict[str, Tensor]:
    """Give the parameters of transformers' V-JEPA 2 the names of the released files; the predictor is left out."""
    state: dict[str, Tensor] = {}
    for long, value in sorted(part.items()):
        name = long.removeprefix("vjepa2.")
        if not name.startswith("encoder."):
            continue
        name = name.removeprefix("encoder.").replace("layer.", "blocks.", 1).replace(".attention.", ".attn.")
        name = name.replace("embeddings.patch_embeddings", "patch_embed").replace("layernorm.", "norm.")
        state[name] = value
    for name in [name for name in state if ".attn.query." in name]:
        thirds = [state.pop(name.replace(".query.", f".{third}.")) for third in ("query", "key", "value")]
        state[name.replace(".query.", ".qkv.")] = torch.cat(thirds)
    return state


def _names(content: dict[str, Any]) -> str:
    """List the first keys of a dictionary."""
    names = sorted(map(str, content))
    return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
