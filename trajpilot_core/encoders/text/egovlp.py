"""Text tower of EgoVLPv2 (facebookresearch/EgoVLPv2, MIT), loaded into transformers' RobertaModel.

Without the fusion layers, which only video input uses, the tower is a stock roberta-base; how that was checked:
docs/decisions/text-encoders.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import RobertaConfig, RobertaModel, RobertaTokenizer

from schemas.config import TextConfig
from trajpilot_core.encoders.text.base import CHECKPOINT, TOKENIZER, files_digest, model_files, weights_file
from trajpilot_core.encoders.text.egovlp_file import is_stock, read_checkpoint, text_part, write_converted
from trajpilot_core.encoders.text.transformers_text import POOLS, Pool, TransformerText
from trajpilot_core.errors import CheckpointError, InputError

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


def load_egovlp(folder: Path, cfg: TextConfig, device: str) -> TransformerText:
    """Load the EgoVLPv2 text encoder from a folder with its weights and the roberta-base tokenizer files.

    Raises:
        InputError: the checkpoint or the tokenizer is not in the folder.
        CheckpointError: the checkpoint does not have the released layout.
    """
    weights = weights_file(folder)
    for name in TOKENIZER:
        if not (folder / name).is_file():
            raise InputError(f"{name} is missing in {folder}; put roberta-base's tokenizer there (docs/models.md)")
    state = read_checkpoint(weights)
    tower = text_tower(state).to(device).eval()
    return TransformerText(
        digest=f"egovlpv2:{cfg.embedding}:{files_digest(model_files(cfg))}",
        tokenizer=RobertaTokenizer.from_pretrained(folder, local_files_only=True),
        tower=tower,
        pool=projected_pool(text_projection(state).to(device))
        if cfg.embedding == "projected"
        else POOLS[cfg.embedding],
        max_tokens=cfg.max_tokens,
        batch=cfg.batch,
        device=device,
    )


def convert(source: Path, target: Path) -> dict[str, str]:
    """Write the text tower and its projection from the released checkpoint as safetensors.

    Returns:
        Header of the file, with name and sha256 of the source.

    Raises:
        InputError: the source does not exist, the target exists, or its name does not match the patterns of weights.
        CheckpointError: the source does not have the released layout.
    """
    if not source.is_file():
        raise InputError(f"no file {source}; name the downloaded {CHECKPOINT}")
    part = text_part(read_checkpoint(source))
    text_tower(part)
    text_projection(part)
    return write_converted(part, source, target)


def text_tower(state: Mapping[str, Tensor]) -> Any:
    """Build roberta-base from the `text_model.` weights: all 197 of them, and no others.

    Raises CheckpointError: keys are missing or unknown.
    """
    text = {key.removeprefix("text_model."): value for key, value in state.items() if key.startswith("text_model.")}
    kept = {key: value for key, value in text.items() if is_stock(key)}
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

    Raises CheckpointError: the embedding table or the first layer is missing.
    """
    try:
        vocabulary, width = text["embeddings.word_embeddings.weight"].shape
        positions = len(text["embeddings.position_embeddings.weight"])
        hidden = len(text["encoder.layer.0.intermediate.dense.weight"])
    except KeyError as error:
        raise CheckpointError(f"text tower: {error} is missing; expected the released {CHECKPOINT}") from error
    heads = max(1, width // (ROBERTA_BASE["hidden_size"] // ROBERTA_BASE["num_attention_heads"]))
    sizes = {"vocab_size": vocabulary, "hidden_size": width, "max_position_embeddings": positions}
    return {**ROBERTA_BASE, **sizes, "intermediate_size": hidden, "num_attention_heads": heads}


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


def projected_pool(projection: nn.Sequential) -> Pool:
    """Return the pool that projects the first token's state, (B, T, W) -> (B, E)."""

    def pool(states_BTW: Tensor, mask_BT: Tensor) -> Tensor:
        out: Tensor = projection(states_BTW[:, 0])
        return out

    return pool
