"""Checkpoints of a training in progress: one safetensors file, replaced atomically after an epoch.

It contains the model, the optimizer, random states, the weights of the best epoch and, as JSON in its metadata, the
curve; that of a completed training no longer contains model and optimizer. The metadata contain a digest of the
tensors, because the format does not detect flipped bits; a damaged checkpoint is set aside and the training starts
again. Sizes: docs/decisions/training.md.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from schemas.results import CurvePoint
from trajpilot_core.errors import CheckpointError
from trajpilot_core.store.files import LocalFolder, naming_failures

FORMAT = 3
NAME = "checkpoint.safetensors"
log = logging.getLogger("trajpilot")


@dataclass
class TrainingProgress:
    """Progress of a training; only the loop changes it."""

    epoch: int = 0
    """Epochs done."""
    best_epoch: int = 0
    best_score: float = float("-inf")
    scores: list[float] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    """Parameters and buffers of the best epoch, on the CPU."""


class Trained(NamedTuple):
    """What changes while a training runs, apart from its progress."""

    name: str
    """`<chain>/<variant>`."""
    model: nn.Module
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    """Generator of the batches."""
    device: str
    """Device whose random state is saved next to the CPU's."""


def write_checkpoint(folder: Path, trained: Trained, progress: TrainingProgress, *, has_ended: bool) -> None:
    """Write the checkpoint of a training into its folder.

    Raises StoreIOError: the disk failed or is full; an earlier checkpoint is kept.
    """
    tensors = {"random/cpu": torch.get_rng_state(), "random/batches": trained.generator.get_state()}
    if _has_cuda_state(trained.device):
        tensors["random/cuda"] = torch.cuda.get_rng_state(trained.device)
    tensors |= {f"best/{key}": value for key, value in progress.best.items()}
    if not has_ended:  # the result of a completed training needs neither model nor optimizer
        tensors |= {f"model/{key}": value for key, value in trained.model.state_dict().items()}
        moments = trained.optimizer.state_dict()["state"]  # of AdamW; learning rates follow from the step
        tensors |= {f"optimizer/{n}/{key}": value for n, values in moments.items() for key, value in values.items()}
    tensors = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    facts = {
        "format": FORMAT,
        "name": trained.name,
        "has_ended": has_ended,
        "epoch": progress.epoch,
        "best_epoch": progress.best_epoch,
        "best_score": progress.best_score,
        "scores": progress.scores,
        "curve": [row.model_dump(mode="json") for row in progress.curve],
        "digest": tensors_digest(tensors),
    }
    write_atomically(folder / NAME, tensors, {"progress": json.dumps(facts)})


def load_checkpoint(folder: Path | None, trained: Trained) -> TrainingProgress | None:
    """Restore model, optimizer and random states from a checkpoint; None if there is none or it is damaged.

    Raises CheckpointError: the folder contains the checkpoint of another training.
    """
    if folder is None or not is_there(folder / NAME):
        return None
    try:
        tensors, facts, progress = _read(folder)
    except (SafetensorError, ValueError, KeyError) as error:
        with naming_failures("set aside", folder / NAME):
            damaged = (folder / NAME).rename(folder / f"damaged-{NAME}")
        log.warning(
            "checkpoint of %s is damaged (%s), moved to %s; the training starts again", trained.name, error, damaged
        )
        return None
    if facts["name"] != trained.name:
        raise CheckpointError(
            f"{folder} contains the training {facts['name']!r}, not {trained.name!r}; delete that folder"
        )
    if not facts["has_ended"]:
        trained.model.load_state_dict(_below(tensors, "model/"), strict=True)
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in _below(tensors, "optimizer/").items():
            number, name = key.split("/", 1)
            moments.setdefault(int(number), {})[name] = value
        groups = trained.optimizer.state_dict()["param_groups"]
        trained.optimizer.load_state_dict({"state": moments, "param_groups": groups})
    torch.set_rng_state(tensors["random/cpu"])
    trained.generator.set_state(tensors["random/batches"])
    if _has_cuda_state(trained.device) and "random/cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random/cuda"], trained.device)
    return progress


def read_progress(folder: Path) -> TrainingProgress:
    """Return the progress of the training in `folder`, with its best weights.

    Raises CheckpointError: its checkpoint is damaged.
    """
    try:
        return _read(folder)[2]
    except (SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{folder / NAME} is damaged ({error}); delete it and run the stage again") from error


def write_atomically(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file whole, replacing any older one; missing folders are created.

    Raises StoreIOError: the disk failed or is full; an existing file is kept.
    """
    LocalFolder(str(path.parent.absolute())).replace(path.name, save(dict(tensors), dict(metadata)))


def read_tensors(
    path: Path, device: str, wanted: Callable[[str], bool] = lambda name: True
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors with `wanted` names, in their saved shapes, and the metadata of a safetensors file.

    Raises StoreIOError: the file is missing or cannot be read.
    """
    with naming_failures("read", path), safe_open(path, "pt", device=device) as file:
        names = [name for name in file.keys() if wanted(name)]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in names}, dict(file.metadata() or {})


def tensors_digest(tensors: Mapping[str, Tensor]) -> str:
    """Return the sha256 of names, types, shapes and bytes of CPU tensors, in order of their names."""
    digest = hashlib.sha256()
    for key in sorted(tensors):
        value = tensors[key]
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_there(path: Path) -> bool:
    """Return whether a file exists; StoreIOError if the disk fails."""
    with naming_failures("look at", path):
        return path.is_file()


def _read(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any], TrainingProgress]:
    """Read the tensors and facts of a checkpoint, and its progress; check the digest."""
    tensors, metadata = read_tensors(folder / NAME, "cpu")
    facts: dict[str, Any] = json.loads(metadata["progress"])
    if facts["format"] != FORMAT:
        raise ValueError(f"its format is {facts['format']}, not {FORMAT}")
    if tensors_digest(tensors) != facts["digest"]:
        raise ValueError("its digest does not match its tensors")
    curve = [CurvePoint.model_validate(row) for row in facts["curve"]]
    known = facts["epoch"], facts["best_epoch"], facts["best_score"], facts["scores"]
    return tensors, facts, TrainingProgress(*known, curve, _below(tensors, "best/"))


def _has_cuda_state(device: str) -> bool:
    """Return whether a training on this device samples on a GPU; `cpu` does not initialise CUDA."""
    return device.startswith("cuda") and torch.cuda.is_available()


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose key starts with `prefix`, with the prefix removed."""
    return {key[len(prefix) :]: value for key, value in tensors.items() if key.startswith(prefix)}
