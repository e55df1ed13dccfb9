"""Checkpoint of a training in progress: one safetensors file with JSON in its metadata, replaced atomically.

It holds model, optimizer, best weights, random states and the curve. A digest of the tensors lies in the metadata,
since the format does not notice a flipped bit; a damaged checkpoint is set aside and the training starts over.
"""

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from schemas.results import CurvePoint
from trajpilot_core.errors import CheckpointError
from trajpilot_core.store.files import asked_again, naming_failures

FORMAT = 1
NAME = "checkpoint.safetensors"
log = logging.getLogger("trajpilot")


@dataclass
class TrainingProgress:
    """How far a training is; changed by the loop only."""

    epoch: int = 0
    """Epochs done."""
    best_epoch: int = 0
    best_score: float = float("-inf")
    scores: list[float] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    """Parameters and buffers of the best epoch, on the CPU."""


def save_checkpoint(
    folder: Path,
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
    progress: TrainingProgress,
) -> None:
    """Write the checkpoint of the training `name` into `folder`, whole or not at all."""
    tensors = {f"model/{key}": value for key, value in model.state_dict().items()}
    tensors |= {f"best/{key}": value for key, value in progress.best.items()}
    tensors |= {f"optimizer/{key}": value for key, value in _optimizer_tensors(optimizer).items()}
    tensors |= {"random/cpu": torch.get_rng_state(), "random/batches": generator.get_state()}
    if torch.cuda.is_available():
        tensors["random/cuda"] = torch.cuda.get_rng_state()
    tensors = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    facts = {
        "format": FORMAT,
        "name": name,
        "epoch": progress.epoch,
        "best_epoch": progress.best_epoch,
        "best_score": progress.best_score,
        "scores": progress.scores,
        "curve": [row.model_dump(mode="json") for row in progress.curve],
        "digest": tensors_digest(tensors),
    }
    write_atomically(folder / NAME, tensors, {"progress": json.dumps(facts)})


def load_checkpoint(
    folder: Path | None,
    name: str,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> TrainingProgress | None:
    """Put a checkpoint back into model, optimizer and random states; None where there is none or it is damaged.

    Raises:
        CheckpointError: the folder holds the checkpoint of another training.
    """
    if folder is None or not is_there(folder / NAME):
        return None
    try:
        tensors, facts = _read(folder / NAME)
    except (SafetensorError, ValueError, KeyError) as error:
        with naming_failures("set aside", folder / NAME):
            damaged = (folder / NAME).rename(folder / f"damaged-{NAME}")
        log.warning("checkpoint of %s is damaged (%s), set aside as %s; it starts over", name, error, damaged)
        return None
    if facts["name"] != name or facts["format"] != FORMAT:
        raise CheckpointError(f"{folder} holds {facts['name']!r}, not {name!r}; delete that folder")
    model.load_state_dict(_below(tensors, "model/"), strict=True)
    _restore_optimizer(optimizer, _below(tensors, "optimizer/"))
    torch.set_rng_state(tensors["random/cpu"])
    generator.set_state(tensors["random/batches"])
    if torch.cuda.is_available() and "random/cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random/cuda"])
    return _progress(tensors, facts)


def read_progress(folder: Path) -> TrainingProgress:
    """Return how far the training in `folder` is, with its best weights.

    Raises:
        CheckpointError: its checkpoint is damaged.
    """
    try:
        return _progress(*_read(folder / NAME))
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder / NAME} is damaged ({error}); delete it and run the stage again") from error


def checkpoint_epoch(folder: Path) -> int:
    """Return the epochs that the checkpoint in `folder` has done, by its header alone; 0 where there is none."""
    try:
        with safe_open(folder / NAME, "pt") as file:
            return int(json.loads(file.metadata()["progress"])["epoch"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        return 0


def write_atomically(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file next to `path`, sync it, and rename it into place; its folder is made where absent.

    Raises:
        StoreIOError: the disk failed or is full; a file of before stays.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with naming_failures("write", path), _discarding(temporary):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file(dict(tensors), temporary, dict(metadata))
        except SafetensorError as error:  # what the library makes of a failing disk
            raise asked_again(path.parent, str(error)) from error
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)


@contextlib.contextmanager
def _discarding(temporary: Path) -> Iterator[None]:
    """Remove a temporary file where its writing fails: a full disk has room again."""
    try:
        yield
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def read_tensors(path: Path, device: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors by name, each of the shape that was saved, and the metadata of a safetensors file.

    Raises:
        StoreIOError: the file is absent or cannot be read.
    """
    with naming_failures("read", path), safe_open(path, "pt", device=device) as file:
        return {key: file.get_tensor(key) for key in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 over names, types, shapes and bytes of CPU tensors, in order of their names."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        value = tensors[key]
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def is_there(path: Path) -> bool:
    """Return whether a file is there; StoreIOError where the disk does not say."""
    with naming_failures("look at", path):
        return path.is_file()


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a checkpoint and check its digest."""
    tensors, metadata = read_tensors(path, "cpu")
    facts: dict[str, Any] = json.loads(metadata["progress"])
    if tensors_digest(tensors) != facts["digest"]:
        raise ValueError("its digest does not match its tensors")
    return tensors, facts


def _progress(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> TrainingProgress:
    """Build the progress that a checkpoint records."""
    curve = [CurvePoint.model_validate(row) for row in facts["curve"]]
    best = _below(tensors, "best/")
    return TrainingProgress(facts["epoch"], facts["best_epoch"], facts["best_score"], facts["scores"], curve, best)


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """State of AdamW as `<parameter number>/<name>` -> tensor; learning rates follow from the step."""
    state = optimizer.state_dict()["state"]
    return {f"{number}/{name}": value for number, values in state.items() for name, value in values.items()}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put the state of AdamW back."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        number, name = key.split("/", 1)
        state.setdefault(int(number), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Tensors whose key starts with `prefix`, without it."""
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
