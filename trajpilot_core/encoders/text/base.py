"""What a frozen text encoder is (texts -> unit vectors), and the files that it is made of. Imports no torch."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.config import TextConfig
from trajpilot_core.errors import InputError

WEIGHT_SUFFIXES = (".safetensors", ".json", ".txt", ".model", ".pth")
"""Files of a model folder that decide what it computes: weights, config, tokenizer."""
CHECKPOINT = "EgoVLPv2.pth"
CONVERTED = "EgoVLPv2.safetensors"
PATTERNS = ("EgoVLPv2*.safetensors", "EgoVLPv2*.pth")
"""Names under which weights are found in a folder; the first that matches anything counts."""
TOKENIZER = ("vocab.json", "merges.txt")
"""Of roberta-base, next to EgoVLPv2's weights."""


class TextEncoder(Protocol):
    """A frozen text encoder."""

    @property
    def digest(self) -> str:
        """Which encoder it is, then a digest of what decides its numbers."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (N, E) float32 of unit norm, one row per text; E is whatever the encoder has."""
        ...


@dataclass(frozen=True)
class TextEncoderSpec:
    """One text encoder: what the registry, the stage `text_bank` and doctor ask of it."""

    name: str
    """TextConfig.encoder."""
    load: Callable[[TextConfig, str], TextEncoder]
    """(settings, device) -> the encoder; imports what it needs when it is called."""
    needs_model: bool = True
    """Whether TextConfig.model has to name a folder with its files, or a model of a hub."""
    on_hub: bool = False
    """Whether TextConfig.model may be the id of a hub."""
    weights: Callable[[Path], list[Path]] = lambda folder: sorted(folder.glob("*.safetensors"))
    """Its weights in a folder."""
    tokenizer: tuple[str, ...] = ()
    """Files that have to lie next to its weights."""

    def files(self, cfg: TextConfig) -> tuple[str, ...]:
        """Return the absolute paths of the local files that it is made of, sorted; none where it has none.

        Raises InputError: TextConfig.model is no folder, and it needs one.
        """
        return model_files(cfg) if self.needs_model and not (self.on_hub and not is_local(cfg)) else ()


def model_files(cfg: TextConfig) -> tuple[str, ...]:
    """Return the absolute paths of the files of TextConfig.model that decide what it computes, sorted.

    Raises InputError: it is no folder.
    """
    return tuple(sorted(str(p) for p in model_folder(cfg).iterdir() if p.suffix in WEIGHT_SUFFIXES))


def is_local(cfg: TextConfig) -> bool:
    """Return whether TextConfig.model is a folder on this machine, not a hub id."""
    return cfg.model is not None and Path(cfg.model).is_dir()


def model_folder(cfg: TextConfig) -> Path:
    """Return TextConfig.model as an absolute folder. Raises InputError: it is not set, or no folder."""
    if cfg.model is None or not is_local(cfg):
        raise InputError(
            f"text_bank.model is {cfg.model!r}, but the encoder {cfg.encoder} needs a folder with its weights and "
            "tokenizer; give it with --set text_bank.model, or use the encoder bag_of_words (offline, for the demo)"
        )
    return Path(cfg.model).absolute()


def weights_file(folder: Path) -> Path:
    """Return the file with EgoVLPv2's weights in a folder: a converted one before the released one.

    Raises InputError: there is none, or more than one that could be meant.
    """
    for pattern in PATTERNS:
        found = sorted(folder.glob(pattern))
        if len(found) > 1:
            raise InputError(f"{folder} holds {', '.join(path.name for path in found)}; leave one of them there")
        if found:
            return found[0]
    raise InputError(f"no {CONVERTED} and no {CHECKPOINT} in {folder}; put EgoVLPv2's weights there (docs/models.md)")


def files_digest(files: Sequence[str]) -> str:
    """Return the sha256 over names and contents of files, in order of their names."""
    digest = hashlib.sha256()
    for path in sorted(map(Path, files)):
        with path.open("rb") as file:
            digest.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def unit_rows(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return (N, E) rows scaled to unit norm in float32.

    Raises InputError: a row is zero or not finite, so that it has no direction.
    """
    wide = vectors.astype(np.float64)
    norm = np.linalg.norm(wide, axis=1, keepdims=True)
    bad = ~np.isfinite(norm[:, 0]) | (norm[:, 0] == 0)
    if bad.any():
        raise InputError(f"the text encoder gave no direction for text {int(bad.argmax())} of {len(norm)}; look at it")
    return np.asarray(wide / norm, np.float32)
