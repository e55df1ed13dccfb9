"""Frozen text encoders behind one protocol: texts -> unit vectors. Importing this module does not import torch."""

import hashlib
from collections.abc import Sequence
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
"""Of roberta-base, beside EgoVLPv2's weights."""


class TextEncoder(Protocol):
    """A frozen text encoder."""

    @property
    def digest(self) -> str:
        """Which encoder it is, then a digest of what decides its numbers."""
        ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (N, E) float32 of unit norm, one row per text; E is whatever the encoder has."""
        ...


def load_text_encoder(cfg: TextConfig, device: str) -> TextEncoder:
    """Return the encoder that `cfg` names.

    Raises:
        InputError: a folder, a revision or a file that it needs is not given or not there.
        CheckpointError: the weights are not of the expected layout.
    """
    if cfg.encoder == "bag_of_words":
        from trajpilot_core.encoders.bag_of_words import BagOfWords

        return BagOfWords(cfg.bag_width)
    if cfg.encoder == "egovlpv2":
        from trajpilot_core.encoders.egovlp import load_egovlp

        return load_egovlp(model_folder(cfg), cfg, device)
    from trajpilot_core.encoders.transformers_text import load_transformers

    return load_transformers(cfg, device)


def encoder_files(cfg: TextConfig) -> tuple[str, ...]:
    """Return the absolute paths of the local files that the encoder is made of, sorted; none for demo and hub."""
    if cfg.encoder == "bag_of_words" or (cfg.encoder == "transformers" and not is_local(cfg)):
        return ()
    folder = model_folder(cfg)
    return tuple(sorted(str(p) for p in folder.iterdir() if p.suffix in WEIGHT_SUFFIXES))


def is_local(cfg: TextConfig) -> bool:
    """Return whether TextConfig.model is a folder on this machine, not a hub id."""
    return cfg.model is not None and Path(cfg.model).is_dir()


def model_folder(cfg: TextConfig) -> Path:
    """Return TextConfig.model as an absolute folder.

    Raises:
        InputError: it is not set, or no folder.
    """
    if cfg.model is None or not is_local(cfg):
        raise InputError(
            f"TextConfig.model is {cfg.model!r}, but the encoder {cfg.encoder} needs a folder with its weights and "
            "tokenizer; set it, or choose the encoder bag_of_words (offline, for the demo)"
        )
    return Path(cfg.model).absolute()


def weights_file(folder: Path) -> Path:
    """Return the file with EgoVLPv2's weights in a folder: a converted one before the released one.

    Raises:
        InputError: there is none, or more than one that could be meant.
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

    Raises:
        InputError: a row is zero or not finite, so that it has no direction.
    """
    wide = vectors.astype(np.float64)
    norm = np.linalg.norm(wide, axis=1, keepdims=True)
    bad = ~np.isfinite(norm[:, 0]) | (norm[:, 0] == 0)
    if bad.any():
        raise InputError(f"the text encoder gave no direction for text {int(bad.argmax())} of {len(norm)}; look at it")
    return np.asarray(wide / norm, np.float32)
