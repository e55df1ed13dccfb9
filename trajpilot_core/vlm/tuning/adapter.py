"""Tuned weights as a folder that peft, and by its documentation vLLM (`--enable-lora`), read.

Layout: https://huggingface.co/docs/peft/developer_guides/checkpoint; that vLLM accepts it was not tried.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from schemas.vlm import VlmTuning
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.store.files import naming_failures
from trajpilot_core.training.checkpoint import write_atomically
from trajpilot_core.vlm.local.adapters import ABOUT, digest_fault, sha256_of
from trajpilot_core.vlm.local.folder import ADAPTER
from trajpilot_core.vlm.tuning.low_rank import PROJECTIONS, require_language

PREFIX = "base_model.model."
FACTORS = {"down_RI": "lora_A.weight", "up_OR": "lora_B.weight"}


def adapter_tensors(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of `TunedModel` under peft's names, (R, I) and (O, R), in float32.

    Raises:
        CheckpointError: one is no weight of a language layer.
    """
    found = {}
    for key, value in state.items():
        if key == "n_rounds":
            continue
        name, factor = key.removeprefix("added.").replace("/", ".").rsplit(".", 1)
        require_language([name])
        found[f"{PREFIX}{name}.{FACTORS[factor]}"] = value.float().contiguous()
    return found


def save_adapter(
    folder: Path, state: Mapping[str, Tensor], cfg: VlmTuning, base: str, about: Mapping[str, object]
) -> None:
    """Write the folder; its weights last, so that one without them is none.

    Args:
        folder: new, or empty.
        state: of `TunedModel`.
        cfg: how it was tuned.
        base: the model that was, by folder and digest.
        about: what else `tuning.json` shall say.

    Raises:
        InputError: the folder holds an adapter.
        CheckpointError: a tensor is no weight of a language layer.
    """
    if (folder / ADAPTER[1]).exists():
        raise InputError(f"{folder} holds an adapter; name a new folder")
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": cfg.rank,
        "lora_alpha": cfg.alpha,
        "lora_dropout": cfg.dropout,
        "target_modules": sorted(PROJECTIONS),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "use_rslora": False,
        "use_dora": False,
    }
    part = folder / f".{ADAPTER[1]}.whole"
    write_atomically(part, adapter_tensors(state), {"format": "pt"})
    told = {**about, "base": base, "settings": cfg.content(), "sha256": sha256_of(part)}
    with naming_failures("write", folder):
        for name, content in ((ADAPTER[0], settings), (ABOUT, told)):
            (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True), encoding="utf-8")
        part.replace(folder / ADAPTER[1])


def check_adapter(folder: Path) -> None:
    """Compare the weights of a folder that `save_adapter` wrote with their digest; others state none.

    Raises:
        CheckpointError: they are not those that were tuned.
    """
    fault = digest_fault(folder)
    if fault is not None:
        raise CheckpointError(fault)
