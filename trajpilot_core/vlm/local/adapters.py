"""Folders of tuned weights: whether all of one is there, is what was tuned, and fits a model. Imports no torch."""

import hashlib
import json
from pathlib import Path
from typing import Any

from trajpilot_core.errors import InputError
from trajpilot_core.store.files import naming_failures
from trajpilot_core.vlm.local.folder import ADAPTER, ModelFolder
from trajpilot_core.vlm.local.tensors import TensorFacts, tensors_of

ABOUT = "tuning.json"
"""Ours, next to peft's files: with which settings, on which takes, of which model, and the digest of the weights."""
LAYERS = "layers."
"""Where the names of a language layer's weights begin, whatever a file calls what is around it."""
SIDES = {"lora_A": 1, "lora_B": 0}
"""Factor -> the axis of its shape, and of the projection's, that have to be equal."""


def adapter_faults(adapter: Path, folder: ModelFolder) -> list[str]:
    """Return what is wrong with tuned weights for a model; nothing is loaded.

    Args:
        adapter: folder with the files of peft.
        folder: of the model that they shall be added to.
    """
    try:
        settings = _json(adapter / ADAPTER[0])
        tensors = tensors_of(adapter / ADAPTER[1])
    except InputError as error:
        return [str(error)]
    kind = settings.get("peft_type")
    found = [] if kind == "LORA" else [f"{ADAPTER[0]} says peft_type {kind}, and LORA is read"]
    digest = digest_fault(adapter)
    return [*found, *([digest] if digest else []), *misfits(tensors, folder)]


def misfits(tensors: dict[str, TensorFacts], folder: ModelFolder) -> list[str]:
    """Return by which tensors tuned weights are those of another model: the first of them, and how many."""
    known = {
        LAYERS + name.split(LAYERS, 1)[1].removesuffix(".weight"): facts.shape
        for path in folder.weights
        for name, facts in tensors_of(path).items()
        if LAYERS in name
    }
    wrong = []
    for name, facts in tensors.items():
        module, _, factor = name.removesuffix(".weight").rpartition(".")
        shape = known.get(LAYERS + module.split(LAYERS, 1)[-1])
        axis = SIDES.get(factor)
        if axis is None or shape is None or len(facts.shape) != 2 or facts.shape[axis] != shape[axis]:
            wrong.append(f"{name} {facts.shape} against {shape or 'no projection'}")
    if not wrong:
        return []
    return [f"{len(wrong)} of {len(tensors)} tensors do not fit {folder.path}, {wrong[0]} for one: another model's"]


def require_base(adapter: Path, name: str) -> None:
    """Refuse tuned weights of another model, where it was noted which one was tuned.

    Args:
        adapter: their folder.
        name: of the model, with the digest of its files behind the last @.

    Raises:
        InputError: it was another one.
    """
    if not (adapter / ABOUT).is_file():
        return
    base = str(_json(adapter / ABOUT).get("base", ""))
    if "@" in base and base.rpartition("@")[2] != name.rpartition("@")[2]:
        raise InputError(f"{adapter} was tuned for {base}, and vlm.model is {name}; name that model, or tune again")


def digest_fault(adapter: Path) -> str | None:
    """Return how the weights differ from their own digest, where `tuning.json` states one; None: they do not."""
    if not (adapter / ABOUT).is_file():
        return None
    told = _json(adapter / ABOUT).get("sha256")
    if told == sha256_of(adapter / ADAPTER[1]):
        return None
    return (
        f"{adapter / ADAPTER[1]} has not the digest that {ABOUT} states ({told}): it was changed or damaged; copy "
        "the folder again, or tune again"
    )


def sha256_of(path: Path) -> str:
    """Return the digest of a file."""
    with naming_failures("read", path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _json(path: Path) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        InputError: the file holds none.
    """
    try:
        held = json.loads(path.read_bytes())
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); copy the folder again") from error
    if not isinstance(held, dict):
        raise InputError(f"{path} is no JSON object; copy the folder again")
    return held
