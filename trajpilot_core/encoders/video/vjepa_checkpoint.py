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

from schemas.features import Release
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder
from trajpilot_core.errors import CheckpointError

M = TypeVar("M", bound=nn.Module)
ENCODER_KEYS = ("target_encoder", "ema_encoder", "encoder")
"""Parts of a training checkpoint, in order of preference: the averaged weights before the trained ones."""
WRAPPERS = r"^(module\.|backbone\.)+"
"""Prefixes from the wrappers of distributed training."""
TRANSFORMERS_PATCH = "encoder.embeddings.patch_embeddings.proj.weight"
"""Parameter that identifies the layout of transformers."""


def load_encoder(path: str, model: str, interpolate_rope: bool, sha256: str | None = None) -> tuple[VjepaEncoder, str]:
    """Build the encoder `model` (see SIZES) with the weights of a .pt or .safetensors file, in eval mode, float32.

    The release (2.0 or 2.1) follows from the parameter names. Returns (encoder, sha256 of the file).

    Raises CheckpointError: the file does not exist, its digest or size differs, or its layout is unsafe or unknown.
    """
    actual = file_sha256(path)
    if sha256 is not None and actual != sha256:
        raise CheckpointError(f"{path} has sha256 {actual}, expected {sha256}; download it again")
    state = encoder_state(read_checkpoint(path), path)
    release: Release = "2.1" if "norms_block.0.weight" in state else "2.0"
    spec = dataclasses.replace(SIZES[model], release=release, interpolate_rope=interpolate_rope)
    width = len(state["patch_embed.proj.weight"])
    depth = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    matches = [name for name, size in SIZES.items() if (size.width, size.depth) == (width, depth)]
    hint = "".join(f": set features.model={name}" for name in matches)
    fault = f"{path} does not fit {model} (V-JEPA {release}); it is {width} wide and {depth} deep{hint}"
    return frozen_with(lambda: VjepaEncoder(spec), state, fault), actual


def frozen_with(build: Callable[[], M], state: Mapping[str, Tensor], fault: str) -> M:
    """Return a model with all weights of a released file, and no others, in eval mode, float32.

    The initial weights of the model that `build` returns take no memory.

    Raises CheckpointError, with the message `fault`: the weights do not fit.
    """
    with torch.device("meta"):
        model = build()
    try:
        model.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        text = str(error).replace("\n\t", " ")
        raise CheckpointError(f"{fault}: {text[:1_500]}") from error
    return model.float().eval().requires_grad_(False)


def file_sha256(path: str) -> str:
    """Return the sha256 (hex) of a file. Raises CheckpointError: it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        what = f"cannot read the checkpoint {path}: {error.strerror}; set features.checkpoint to the downloaded file"
        raise CheckpointError(what) from error


def read_checkpoint(path: str) -> dict[str, Any]:
    """Read a .safetensors file, or a .pt file with weights_only=True, so that no code in it is run.

    Raises CheckpointError: the file is damaged, contains more than tensors, or is not a dictionary.
    """
    try:
        if path.endswith(".safetensors"):
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (UnpicklingError, RuntimeError, EOFError, ValueError, SafetensorError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{path} was refused: {first}; only tensors in a zip-format .pt or .safetensors are read"
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} contains a {type(content).__name__}, expected a dictionary of tensors")
    return content


def encoder_state(content: dict[str, Any], path: str) -> dict[str, Tensor]:
    """Return the encoder's parameters in a checkpoint, without the wrappers' prefixes.

    Files of release 2.0 still contain the unused `pos_embed` of an earlier training, which is left out.

    Raises CheckpointError: the layout is unknown; the message lists the keys.
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
        raise CheckpointError(f"{path} is not a V-JEPA encoder: found {_names(part)}")
    return state


def from_transformers(part: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the parameters of transformers' V-JEPA 2 as in the released files; the predictor is left out."""
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
    """Return a list of the first keys of a dictionary, for messages."""
    names = sorted(map(str, content))
    return ", ".join(names[:12]) + (f", … ({len(names)} in all)" if len(names) > 12 else "")
