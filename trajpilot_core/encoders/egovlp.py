"""Text tower of EgoVLPv2 (facebookresearch/EgoVLPv2, MIT), loaded into transformers' RobertaModel.

The released checkpoint `EgoVLPv2.pth` holds a pickled configuration object beside the weights; it is read with
`weights_only=True` and an empty stand-in for that one class, so that nothing in the file is executed. The tower is a
stock roberta-base once the fusion layers, which only video input uses, are left out (docs/decisions/text-encoders.md).
"""

import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

from schemas.config import TextConfig
from trajpilot_core.encoders.text import encoder_files, files_digest
from trajpilot_core.encoders.transformers_text import POOLS, Pool, TransformerText
from trajpilot_core.errors import CheckpointError, InputError

CHECKPOINT = "EgoVLPv2.pth"
TEXT_KEYS = 197
"""Tensors of roberta-base without pooler."""
FUSION = ("alpha_t2i", "crossattention_t2i")
ROBERTA_BASE = {
    "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2,
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
}  # fmt: skip


def load_egovlp(folder: Path, cfg: TextConfig, device: str) -> TransformerText:
    """Load the EgoVLPv2 text encoder from a folder with EgoVLPv2.pth and the roberta-base tokenizer files.

    Raises:
        InputError: the checkpoint or the tokenizer is not in the folder.
        CheckpointError: the checkpoint is not of the released layout.
    """
    for name in (CHECKPOINT, "vocab.json", "merges.txt"):
        if not (folder / name).is_file():
            raise InputError(f"no {name} in {folder}; put EgoVLPv2's checkpoint and roberta-base's tokenizer there")
    state = read_checkpoint(folder / CHECKPOINT)
    tower = text_tower(state).to(device).eval()
    return TransformerText(
        digest=f"egovlpv2:{cfg.embedding}:{files_digest(encoder_files(cfg))}",
        tokenizer=RobertaTokenizer.from_pretrained(folder, local_files_only=True),
        tower=tower,
        pool=projected_pool(text_projection(state).to(device))
        if cfg.embedding == "projected"
        else POOLS[cfg.embedding],
        max_tokens=cfg.max_tokens,
        batch=cfg.batch,
        device=device,
    )


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the checkpoint's weights without the `module.` prefix of its distributed training.

    Returns:
        Parameter name -> tensor, with the shape that it was saved with.

    Raises:
        CheckpointError: the file needs classes that are not allowed, or has no weights.
    """
    try:
        with _stand_in() as stand_in, torch.serialization.safe_globals([stand_in]):
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(f"{path} cannot be read safely ({_unsafe(path)}): {error}") from error
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} has no state_dict; expected the released {CHECKPOINT}")
    return {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, Tensor)}


def text_tower(state: Mapping[str, Tensor]) -> Any:
    """Build roberta-base from the `text_model.` weights, all 197 of them, none left over.

    Raises:
        CheckpointError: keys are missing or unknown.
    """
    text = {key.removeprefix("text_model."): value for key, value in state.items() if key.startswith("text_model.")}
    kept = {key: value for key, value in text.items() if _is_stock(key)}
    tower = RobertaModel(RobertaConfig(**roberta_sizes(kept)), add_pooling_layer=False)
    missing, unknown = sorted(set(tower.state_dict()) - set(kept)), sorted(set(kept) - set(tower.state_dict()))
    if missing or unknown or len(kept) != TEXT_KEYS:
        raise CheckpointError(
            f"text tower: {len(kept)} tensors, not {TEXT_KEYS}; missing {missing[:3]}, unknown {unknown[:3]}; "
            f"expected the released {CHECKPOINT}"
        )
    tower.load_state_dict(kept, strict=True)
    return tower


def roberta_sizes(text: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return roberta-base's configuration with the widths that the weights have (a head is 64 wide).

    Raises:
        CheckpointError: the embedding table or the first layer is not there.
    """
    try:
        vocabulary, width = text["embeddings.word_embeddings.weight"].shape
        positions = len(text["embeddings.position_embeddings.weight"])
        hidden = len(text["encoder.layer.0.intermediate.dense.weight"])
    except KeyError as error:
        raise CheckpointError(f"text tower: no {error}; expected the released {CHECKPOINT}") from error
    heads = max(1, width // (ROBERTA_BASE["hidden_size"] // ROBERTA_BASE["num_attention_heads"]))
    sizes = {"vocab_size": vocabulary, "hidden_size": width, "max_position_embeddings": positions}
    return {**ROBERTA_BASE, **sizes, "intermediate_size": hidden, "num_attention_heads": heads}


def text_projection(state: Mapping[str, Tensor]) -> nn.Sequential:
    """Build the projection of EgoNCE from `txt_proj.`: linear layers with ReLU between, or ReLU and one linear layer.

    Raises:
        CheckpointError: there is no such projection.
    """
    found = {key.removeprefix("txt_proj."): value for key, value in state.items() if key.startswith("txt_proj.")}
    numbers = sorted({int(key.split(".")[0]) for key in found})
    if numbers not in ([0, 2, 4], [1]):
        raise CheckpointError(f"txt_proj has layers {numbers}; expected [0, 2, 4], or [1] in the small variant")
    layers: list[nn.Module] = []
    for number in range(numbers[-1] + 1):
        weight = found.get(f"{number}.weight")
        bias = f"{number}.bias" in found
        layers.append(nn.ReLU() if weight is None else nn.Linear(weight.shape[1], weight.shape[0], bias=bias))
    projection = nn.Sequential(*layers)
    projection.load_state_dict(found, strict=True)
    return projection.eval()


def projected_pool(projection: nn.Sequential) -> Pool:
    """Return the pool that projects the first token's state, (B, T, W) -> (B, E)."""

    def pool(states_BTW: Tensor, mask_BT: Tensor) -> Tensor:
        out: Tensor = projection(states_BTW[:, 0])
        return out

    return pool


def _is_stock(key: str) -> bool:
    """Whether a text key belongs to plain roberta-base: no fusion layer, no pooler, no buffer of positions."""
    return not (any(part in key for part in FUSION) or key == "embeddings.position_ids" or key.startswith("pooler."))


@contextmanager
def _stand_in() -> Iterator[type]:
    """Offer an empty class under the name that the checkpoint's pickle asks for, inside the block only."""
    module = types.ModuleType("parse_config")
    stand_in = type("ConfigParser", (), {"__module__": "parse_config"})
    module.ConfigParser = stand_in  # type: ignore[attr-defined]
    before = sys.modules.get("parse_config")
    sys.modules["parse_config"] = module
    try:
        yield stand_in
    finally:
        if before is None:
            del sys.modules["parse_config"]
        else:
            sys.modules["parse_config"] = before


def _unsafe(path: Path) -> str:
    """Name the classes in the file that are not allowed, as far as it can be scanned."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except (UnpicklingError, RuntimeError, ValueError, EOFError):
        return "not a torch file"
    return f"it asks for {', '.join(names)}" if names else "no unknown classes"
