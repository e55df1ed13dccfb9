"""Folders of models as a hub lays them out: of which kind one is, whether all of it is there, and its size.

Imports no torch: plans ask for the files, too.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.vlm import VlmConfig
from trajpilot_core.encoders.text.base import files_digest
from trajpilot_core.errors import InputError
from trajpilot_core.vlm.local.tensors import tensors_of

SEEING = {
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
    "qwen3_vl_moe": "Qwen3VLMoeForConditionalGeneration",
}
"""`model_type` of a config.json -> class of transformers, of models that see frames."""
TUNABLE = {"qwen3_vl": SEEING["qwen3_vl"]}
"""Those of them that can be tuned here: layers of experts have other projections."""
READING = {"qwen3": "Qwen3ForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}
"""The same of models that read text alone."""
CONFIG, INDEX, WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
IMAGES = "preprocessor_config.json"
TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"))
"""Files of a tokenizer, either of which is enough."""
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
SUFFIXES = (".safetensors", ".json", ".txt", ".jinja", ".model")
"""Files that decide what a model answers."""
NAME_DIGITS = 16


@dataclass(frozen=True)
class ModelFolder:
    """A folder in which everything was found that a model is made of."""

    path: Path
    kind: str
    """Class of transformers."""
    sees: bool
    weights: tuple[Path, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """The absolute paths of what decides its answers, sorted."""
        return files_in(self.path)

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors, by the headers of their files."""
        return sum(one.n_bytes for path in self.weights for one in tensors_of(path).values())

    def index(self) -> dict[str, str]:
        """Return tensor -> file of weights, as the index lists them; nothing where there is no index."""
        if not (self.path / INDEX).is_file():
            return {}
        return {str(name): str(file) for name, file in _read(self.path / INDEX, "")["weight_map"].items()}


def files_in(folder: Path) -> tuple[str, ...]:
    """Return the absolute paths of the files of a folder that decide what is computed with it, sorted."""
    return tuple(sorted(str(path) for path in folder.absolute().iterdir() if path.suffix in SUFFIXES))


def model_folder(setting: str, place: str, kinds: Mapping[str, str]) -> ModelFolder:
    """Return the folder of a model.

    Args:
        setting: which names it, for messages.
        place: the folder.
        kinds: `model_type` -> class, of those that are allowed: SEEING or READING.

    Raises:
        InputError: it is no folder, a file is missing, or the model is of another kind.
    """
    folder = Path(place)
    if not folder.is_dir():
        raise InputError(
            f"{setting} is {place}, which is no folder here; vlm.backend=transformers reads models from folders with "
            "the files of a hub's repository and downloads nothing: name one, or answer with another vlm.backend"
        )
    kind = str(_read(folder / CONFIG, setting).get("model_type"))
    if kind not in kinds:
        raise InputError(
            f"{setting}: {folder / CONFIG} says model_type {kind}; what can answer there is {', '.join(kinds)}"
        )
    if not any(all((folder / name).is_file() for name in names) for names in TOKENIZERS):
        needed = " and no ".join(" with ".join(names) for names in TOKENIZERS)
        raise InputError(f"{setting}: no {needed} in {folder}; put the tokenizer's files there")
    sees = kind in SEEING
    if sees:
        _read(folder / IMAGES, setting)
    return ModelFolder(folder, kinds[kind], sees, _weights(folder, setting))


def _weights(folder: Path, setting: str) -> tuple[Path, ...]:
    """Return the files of weights, all of those that the index lists.

    Raises:
        InputError: there are none, or one of them is missing.
    """
    if (folder / INDEX).is_file():
        listed = sorted(set(_read(folder / INDEX, setting).get("weight_map", {}).values()))
        gone = [name for name in listed if not (folder / name).is_file()]
        if gone or not listed:
            shown = ", ".join(gone[:3]) or "any file"
            raise InputError(f"{setting}: {folder / INDEX} lists {len(listed)} files, and {shown} is missing; copy it")
        return tuple(folder / name for name in listed)
    if not (folder / WEIGHTS).is_file():
        raise InputError(f"{setting}: no {WEIGHTS} and no {INDEX} in {folder}; only safetensors are read")
    return (folder / WEIGHTS,)


def _read(path: Path, setting: str) -> dict[str, Any]:
    """Return a JSON object that has to be there.

    Raises:
        InputError: it is not there, or of another form.
    """
    if not path.is_file():
        raise InputError(f"{setting}: no {path.name} in {path.parent}; put the repository's whole files there")
    try:
        found = json.loads(path.read_bytes())
    except ValueError as error:
        raise InputError(f"{setting}: {path} is no JSON ({error}); copy it again") from error
    if not isinstance(found, dict):
        raise InputError(f"{setting}: {path} is no JSON object; copy it again")
    return found


def folders_of(cfg: VlmConfig) -> list[ModelFolder]:
    """Return the models that the rows of these settings ask: the one that sees, and the one that fills middles.

    Raises:
        InputError: one of them is not there, not whole or of another kind.
    """
    found = [model_folder("vlm.model", cfg.model, SEEING)]
    if "qwen_sft_llm" in cfg.rows:
        found.append(model_folder("vlm.filler", cfg.filler, READING))
    return found


def adapter_folder(cfg: VlmConfig) -> Path | None:
    """Return the folder of the tuned weights; None where these settings use none.

    Raises:
        InputError: it, or a file of it, is missing.
    """
    if cfg.adapter is None or "qwen_sft_llm" not in cfg.rows:
        return None
    gone = [name for name in ADAPTER if not (Path(cfg.adapter) / name).is_file()]
    if gone:
        raise InputError(f"vlm.adapter: no {' and no '.join(gone)} in {cfg.adapter}; name a folder that peft wrote")
    return Path(cfg.adapter)


def model_files(cfg: VlmConfig) -> tuple[str, ...]:
    """Return the absolute paths of all files that decide the answers; none where another program answers.

    Raises:
        InputError: as `folders_of` and `adapter_folder`.
    """
    if cfg.backend != "transformers":
        return ()
    adapter = adapter_folder(cfg)
    tuned = () if adapter is None else files_in(adapter)
    return (*(path for folder in folders_of(cfg) for path in folder.files), *tuned)


def named_by_content(cfg: VlmConfig) -> VlmConfig:
    """Return the settings with models named as requests name them: by folder and digest of its files.

    So other weights in the same folder are asked again, and the same ones in another folder are not. Every byte is
    read for it, once a task.

    Raises:
        InputError: as `model_files`.
    """
    if cfg.backend != "transformers":
        return cfg
    names = [_name(folder.path, folder.files) for folder in folders_of(cfg)]
    adapter = adapter_folder(cfg)
    return cfg.replace(
        model=names[0],
        filler=names[-1] if len(names) > 1 else cfg.filler,
        adapter=None if adapter is None else _name(adapter, files_in(adapter)),
    )


def _name(folder: Path, files: Iterable[str]) -> str:
    return f"{folder.absolute().name}@{files_digest(tuple(files))[:NAME_DIGITS]}"
