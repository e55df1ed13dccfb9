"""Sentence vectors of a transformers model in a folder; code of the model's repository is never run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.config import TextConfig
from trajpilot_core.encoders.text.base import files_digest, model_files, model_folder, unit_rows
from trajpilot_core.errors import CheckpointError, InputError

Pool = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TransformerText:
    """A tokenizer, a text tower, and the pooling of its token states."""

    digest: str
    tokenizer: Any
    tower: Any
    """Module whose output has last_hidden_state (B, T, W)."""
    pool: Pool
    """(states (B, T, W), mask (B, T)) -> (B, E)."""
    config: TextConfig
    device: str

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return (N, E) float32 of unit norm; texts are padded per batch and truncated at max_tokens."""
        parts = []
        options = {"padding": True, "truncation": True, "max_length": self.config.max_tokens, "return_tensors": "pt"}
        for at in range(0, len(texts), self.config.batch):
            tokens = self.tokenizer(list(texts[at : at + self.config.batch]), **options).to(self.device)
            states = self.tower(**tokens).last_hidden_state
            parts.append(self.pool(states, tokens["attention_mask"]).float().cpu().numpy())
        return unit_rows(np.concatenate(parts))


def load_transformers(cfg: TextConfig, device: str) -> TransformerText:
    """Load any transformers text model from safetensors in a folder.

    Raises InputError: no folder is set, or the embedding is unknown; CheckpointError: the files of the folder have
    another format, are damaged, or would run code.
    """
    if cfg.embedding not in POOLS:
        raise InputError(f"text_bank.embedding is {cfg.embedding!r}; the encoder transformers has {', '.join(POOLS)}")
    folder = model_folder(cfg)
    try:
        tower, tokenizer = _loaded(folder, device)
    except (OSError, ValueError) as error:
        first = str(error).splitlines()[0]
        raise CheckpointError(f"{folder} was refused: {first}; only safetensors, no code of the model") from error
    return TransformerText(
        digest=f"transformers:{cfg.embedding}:{files_digest(model_files(cfg))}",
        tokenizer=tokenizer,
        tower=tower,
        pool=POOLS[cfg.embedding],
        config=cfg,
        device=device,
    )


def _loaded(folder: Path, device: str) -> tuple[Any, Any]:
    """Return the tower and the tokenizer, without running code of the model's repository.

    If a model has more parts than the text encoder (T5, CLIP), only that part is used. A tokenizer without a padding
    token, as for decoders, pads with its end token, which the mask hides.
    """
    from transformers import (
        MODEL_FOR_TEXT_ENCODING_MAPPING,
        AutoConfig,
        AutoModel,
        AutoModelForTextEncoding,
        AutoTokenizer,
    )

    where = {"local_files_only": True, "trust_remote_code": False}
    about = AutoConfig.from_pretrained(folder, **where)
    about = getattr(about, "text_config", about)
    kind = AutoModelForTextEncoding if type(about) in MODEL_FOR_TEXT_ENCODING_MAPPING else AutoModel
    tower = kind.from_pretrained(folder, config=about, use_safetensors=True, **where).to(device).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, **where)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tower, tokenizer


def _mean_pool(states_BTW: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the (B, W) mean of the states of the real tokens."""
    weight_BT1 = mask_BT[..., None].to(states_BTW.dtype)
    return (states_BTW * weight_BT1).sum(1) / weight_BT1.sum(1)


def _last_pool(states_BTW: Tensor, mask_BT: Tensor) -> Tensor:
    """Return the (B, W) state of the last real token, on whichever side the padding is."""
    places_BT = torch.arange(mask_BT.shape[1], device=mask_BT.device) * mask_BT
    return states_BTW[torch.arange(len(mask_BT), device=mask_BT.device), places_BT.argmax(dim=1)]


POOLS: dict[str, Pool] = {"cls": lambda states_BTW, _: states_BTW[:, 0], "mean": _mean_pool, "last": _last_pool}
