"""The size of a model by its config.json and the headers of its weights: what a prompt costs it. Imports no torch.

Arithmetic, not measured; docs/decisions/vlm.md says how.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trajpilot_core.errors import InputError
from trajpilot_core.vlm.local.folder import CONFIG, ModelFolder
from trajpilot_core.vlm.local.tensors import TensorFacts, tensors_of

EXPERT = ".experts."
"""In the names of weights of which each token meets a few."""
STREAMS = 6
"""Vectors of the width of the model that one layer holds of each token at its peak. Assumed."""


@dataclass(frozen=True)
class ModelShape:
    """What decides memory and work of a model."""

    layers: int
    heads: int
    kv_heads: int
    head_width: int
    width: int
    inner: int
    """Width of the feed-forward part that one token meets."""
    longest: int
    """Tokens that it was made for."""
    item_bytes: int
    """Of one number."""
    weight_bytes: int
    active: int
    """Numbers that one token meets: of experts those that it is sent to."""

    def kv_bytes(self, tokens: int) -> int:
        """Return the bytes of the keys and values of so many tokens."""
        return 2 * self.layers * self.kv_heads * self.head_width * self.item_bytes * tokens

    def layer_bytes(self, tokens: int) -> int:
        """Return the bytes that one layer holds at its peak while so many tokens are computed at once."""
        attended = (self.heads + 2 * self.kv_heads) * self.head_width
        return tokens * (STREAMS * self.width + 3 * self.inner + attended) * self.item_bytes

    def prompt_flops(self, tokens: int, before: int = 0) -> float:
        """Return the floating-point operations for tokens of a prompt behind `before` tokens that are known."""
        seen = tokens * (before + tokens / 2)
        return 2.0 * self.active * tokens + 4.0 * self.layers * self.heads * self.head_width * seen

    def token_bytes(self, tokens: int) -> int:
        """Return the bytes that are read for one more token of an answer, behind so many."""
        return self.active * self.item_bytes + self.kv_bytes(tokens)


PAPERS = {
    True: ModelShape(64, 64, 8, 128, 5120, 25600, 262_144, 2, 66_000_000_000, 33_000_000_000),
    False: ModelShape(48, 32, 4, 128, 2048, 6144, 40_960, 2, 61_000_000_000, 3_300_000_000),
}
"""Whether a model sees -> what is assumed of the paper's, Qwen3-VL-32B and Qwen3-30B-A3B, where no folder says: their
files were never at hand."""


def model_shape(folder: ModelFolder, setting: str) -> ModelShape:
    """Return the shape of a model in a folder.

    Raises:
        InputError: config.json lacks a number, or a file of weights is not whole.
    """
    path = folder.path / CONFIG
    whole = json.loads(path.read_bytes())
    held: Mapping[str, Any] = whole.get("text_config", whole)
    found = {name: facts for file in folder.weights for name, facts in tensors_of(file).items()}
    try:
        heads, width = int(held["num_attention_heads"]), int(held["hidden_size"])
        chosen = int(held.get("num_experts_per_tok") or 0)
        inner = chosen * int(held["moe_intermediate_size"]) if chosen else int(held["intermediate_size"])
        return ModelShape(
            layers=int(held["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(held.get("num_key_value_heads") or heads),
            head_width=int(held.get("head_dim") or width // heads),
            width=width,
            inner=inner,
            longest=int(held["max_position_embeddings"]),
            item_bytes=_item_bytes(found),
            weight_bytes=sum(one.n_bytes for one in found.values()),
            active=_active(found, chosen, int(held.get("num_experts") or held.get("num_local_experts") or 0)),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise InputError(f"{setting}: {path}: {error!r} is missing or no number; copy the file again") from error


def missing_tensors(folder: ModelFolder, layers: int) -> list[str]:
    """Return what the weights of a model lack, by names alone.

    Layers, or tensors of them that other layers have; the vectors of tokens; the part that sees; tensors of the index.
    Whether every tensor of the kind is there and fits is known when it is loaded.

    Args:
        folder: of the model.
        layers: as its config.json states them.

    Raises:
        InputError: a file of weights is not whole.
    """
    held = {file.name: set(tensors_of(file)) for file in folder.weights}
    names = {name for found in held.values() for name in found}
    seeing = {name for name in names if ".visual." in name}
    split = [name.split("layers.", 1)[1].partition(".") for name in names - seeing if "layers." in name]
    of_layer: dict[str, set[str]] = {str(n): set() for n in range(layers)}
    for layer, _, rest in split:
        of_layer.setdefault(layer, set()).add(rest)
    common = {rest for found in of_layer.values() for rest in found if not rest.startswith("mlp.")}
    lacking = [f"layers.{n}.{rest}" for n, found in of_layer.items() for rest in sorted(common - found)]
    lacking += [] if any("embed_tokens" in name for name in names) else ["embed_tokens"]
    lacking += ["the part that sees"] if folder.sees and not seeing else []
    return lacking + [name for name, file in folder.index().items() if name not in held.get(file, ())]


def _item_bytes(found: Mapping[str, TensorFacts]) -> int:
    largest = max(found.values(), key=lambda one: one.n_bytes)
    return largest.n_bytes // max(1, largest.numbers)


def _active(found: Mapping[str, TensorFacts], chosen: int, experts: int) -> int:
    shared = sum(one.numbers for name, one in found.items() if EXPERT not in name)
    of_experts = sum(one.numbers for name, one in found.items() if EXPERT in name)
    return shared + (of_experts * chosen // experts if experts else of_experts)
