"""Text tower of EgoVLPv2 (facebookresearch/EgoVLPv2, MIT), loaded into transformers' RobertaModel.

Without the fusion layers, which only video input uses, the tower is a stock roberta-base. The released `EgoVLPv2.pth`
contains its authors' configuration object next to the weights: known names in its pickle (INERT) are replaced by an
object that accepts anything and does nothing; any other name is refused. Details: docs/decisions/text-encoders.md.
"""

from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor, nn

from schemas.config import TextConfig
from trajpilot_core.encoders.text.base import (
    CHECKPOINT,
    TOKENIZER,
    files_digest,
    model_files,
    model_folder,
    weights_file,
)
from trajpilot_core.encoders.text.transformers_text import POOLS, TransformerText
from trajpilot_core.errors import CheckpointError, InputError

FUSION = ("alpha_t2i", "crossattention_t2i")
"""Layers that only video input uses."""
INERT = (
    "parse_config.ConfigParser",
    "argparse.Namespace",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "pathlib.PureWindowsPath",
    "numpy.dtype",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
)
"""Objects that the authors' trainer writes next to the weights: its options, paths, and the best value so far."""
TEXT_KEYS = 197
"""Number of tensors of roberta-base without pooler."""
ROBERTA_BASE = {
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
}


class Inert:
    """Replacement for an unwanted object in a pickle: accepts anything, does nothing."""

    def __new__(cls, *ignored: object) -> "Inert":
        """Return an empty object."""
        return super().__new__(cls)

    def __setstate__(self, ignored: object) -> None:
        """Ignore the state."""


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return parameter name -> tensor of a released file, without the `module.` prefix of distributed training.

    Raises CheckpointError: the file is damaged, has no weights, or needs objects that are not allowed.
    """
    with torch.serialization.safe_globals([(Inert, name) for name in INERT]):
        try:
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except (UnpicklingError, RuntimeError, EOFError, TypeError, AttributeError) as error:
            # torch's message names the object that is not allowed; it is long
            raise CheckpointError(f"{path} cannot be read safely: {' '.join(str(error).split())[:1_000]}") from error
    state = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(state, Mapping):
        raise CheckpointError(f"{path} has no state_dict; expected the released {CHECKPOINT}")
    return {key.removeprefix("module."): value for key, value in state.items() if isinstance(value, Tensor)}


def load_egovlp(cfg: TextConfig, device: str) -> TransformerText:
    """Load the EgoVLPv2 text encoder from a folder with its weights and the roberta-base tokenizer files.

    Raises InputError: the checkpoint or the tokenizer is not in the folder; CheckpointError: the checkpoint does not
    have the released layout.
    """
    folder = model_folder(cfg)
    weights = weights_file(folder)
    from transformers import RobertaTokenizer  # loads for seconds

    for name in TOKENIZER:
        if not (folder / name).is_file():
            raise InputError(f"{name} is missing in {folder}; put roberta-base's tokenizer there (docs/models.md)")
    state = read_checkpoint(weights)
    tower = text_tower(state).to(device).eval()
    projection = text_projection(state).to(device) if cfg.embedding == "projected" else None
    return TransformerText(
        digest=f"egovlpv2:{cfg.embedding}:{files_digest(model_files(cfg))}",
        tokenizer=RobertaTokenizer.from_pretrained(folder, local_files_only=True),
        tower=tower,
        pool=POOLS[cfg.embedding] if projection is None else lambda states_BTW, _: projection(states_BTW[:, 0]),
        config=cfg,
        device=device,
    )


def text_tower(state: Mapping[str, Tensor]) -> Any:
    """Build roberta-base as wide as the 197 `text_model.` weights. Raises CheckpointError: keys missing or unknown."""
    from transformers import RobertaConfig, RobertaModel

    text = {key.removeprefix("text_model."): value for key, value in state.items() if key.startswith("text_model.")}
    unread = {key for key in text if any(part in key for part in FUSION) or key.startswith("pooler.")}
    kept = {key: value for key, value in text.items() if key not in unread | {"embeddings.position_ids"}}
    try:
        vocabulary, width = kept["embeddings.word_embeddings.weight"].shape
        positions = len(kept["embeddings.position_embeddings.weight"])
        hidden = len(kept["encoder.layer.0.intermediate.dense.weight"])
    except KeyError as error:
        raise CheckpointError(f"text tower: {error} is missing; expected the released {CHECKPOINT}") from error
    heads = max(1, width // (ROBERTA_BASE["hidden_size"] // ROBERTA_BASE["num_attention_heads"]))
    sizes: dict[str, Any] = {**ROBERTA_BASE, "vocab_size": vocabulary, "hidden_size": width}
    sizes |= {"max_position_embeddings": positions, "intermediate_size": hidden, "num_attention_heads": heads}
    tower = RobertaModel(RobertaConfig(**sizes), add_pooling_layer=False)
    missing, unknown = sorted(set(tower.state_dict()) - set(kept)), sorted(set(kept) - set(tower.state_dict()))
    if missing or unknown or len(kept) != TEXT_KEYS:
        raise CheckpointError(
            f"text tower: {len(kept)} tensors, not {TEXT_KEYS}; missing {missing[:3]}, unknown {unknown[:3]}; "
            f"expected the released {CHECKPOINT}"
        )
    tower.load_state_dict(kept, strict=True)
    return tower


def text_projection(state: Mapping[str, Tensor]) -> nn.Sequential:
    """Build the projection of EgoNCE from `txt_proj.`: linear layers with ReLU between, or ReLU and one linear layer.

    Raises CheckpointError: the layers are others.
    """
    weights = {key.removeprefix("txt_proj."): value for key, value in state.items() if key.startswith("txt_proj.")}
    numbers = sorted({int(key.split(".")[0]) for key in weights})
    if numbers not in ([0, 2, 4], [1]):
        raise CheckpointError(f"txt_proj has layers {numbers}; expected [0, 2, 4], or [1] in the small variant")
    layers: list[nn.Module] = []
    for number in range(numbers[-1] + 1):
        weight = weights.get(f"{number}.weight")
        bias = f"{number}.bias" in weights
        layers.append(nn.ReLU() if weight is None else nn.Linear(weight.shape[1], weight.shape[0], bias=bias))
    projection = nn.Sequential(*layers)
    projection.load_state_dict(weights, strict=True)
    return projection.eval()
