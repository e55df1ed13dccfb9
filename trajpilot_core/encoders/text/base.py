"""The interface of frozen text encoders (texts -> unit vectors), and their files. Does not import torch."""

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
"""Suffixes of the files of a model folder that affect its results: weights, config, tokenizer."""
CHECKPOINT, PATTERN = "EgoVLPv2.pth", "EgoVLPv2*.pth"
"""EgoVLPv2's weights as released, and what matches their variants."""
TOKENIZER = ("vocab.json", "merges.txt")
"""Files of roberta-base next to EgoVLPv2's weights."""


class TextEncoder(Protocol):
    """A frozen text encoder."""

    @property
    def digest(self) -> str:
        """Name of the encoder, and a digest of everything that affects its results."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (N, E) float32 of unit norm, one row per text; E depends on the encoder."""


@dataclass(frozen=True)
class TextEncoderSpec:
    """One text encoder: its properties for the registry, the stage `text_bank` and doctor."""

    name: str
    """TextConfig.encoder."""
    load: Callable[[TextConfig, str], TextEncoder]
    """(settings, device) -> the encoder; imports its dependencies when called."""
    needs_model: bool = True
    """Whether TextConfig.model must name a folder with its files."""
    weights: Callable[[Path], list[Path]] = lambda folder: sorted(folder.glob("*.safetensors"))
    """Folder -> its files of weights."""
    tokenizer: tuple[str, ...] = ()
    """Files that must be next to its weights."""


def model_files(cfg: TextConfig) -> tuple[str, ...]:
    """Return the absolute paths of the files of TextConfig.model that affect its results, sorted.

    Raises InputError: it is not set, or not a folder.
    """
    return tuple(sorted(str(p) for p in model_folder(cfg).iterdir() if p.suffix in WEIGHT_SUFFIXES))


def model_folder(cfg: TextConfig) -> Path:
    """Return TextConfig.model as an absolute folder. Raises InputError: it is not set, or not a folder."""
    if cfg.model is None or not Path(cfg.model).is_dir():
        raise InputError(
            f"text_bank.model is {cfg.model!r}, but the encoder {cfg.encoder} needs a folder with its weights and "
            "tokenizer; set text_bank.model, or use the encoder bag_of_words (offline, for the demo)"
        )
    return Path(cfg.model).absolute()


def weights_file(folder: Path) -> Path:
    """Return the file with EgoVLPv2's weights in a folder. Raises InputError: there is none, or more than one."""
    files = sorted(folder.glob(PATTERN))
    if len(files) > 1:
        raise InputError(f"{folder} contains {', '.join(path.name for path in files)}; keep one of them")
    if not files:
        raise InputError(f"{CHECKPOINT} is not in {folder}; put EgoVLPv2's weights there (docs/models.md)")
    return files[0]


def files_digest(files: Sequence[str]) -> str:
    """Return the sha256 of names and contents of files, in order of their names."""
    digest = hashlib.sha256()
    for path in sorted(map(Path, files)):
        with path.open("rb") as file:
            digest.update(f"{path.name}:{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return digest.hexdigest()


def unit_rows(vectors: NDArray[Any]) -> NDArray[np.float32]:
    """Return (N, E) rows scaled to unit norm in float32. Raises InputError: a row is zero or not finite."""
    wide = vectors.astype(np.float64)
    norm = np.linalg.norm(wide, axis=1, keepdims=True)
    bad = ~np.isfinite(norm[:, 0]) | (norm[:, 0] == 0)
    if bad.any():
        raise InputError(
            f"the text encoder returned no valid vector for text {int(bad.argmax())} of {len(norm)}; check that text"
        )
    return np.asarray(wide / norm, np.float32)
