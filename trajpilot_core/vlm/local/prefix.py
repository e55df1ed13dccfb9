"""Keys and values of the bank, computed once for a model and used by every request whose tokens begin with it.

Shapes: T tokens of a request, P of them shared.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache

from schemas.vlm import VlmRequest


def bank_end(request: VlmRequest, text: str) -> int:
    """Return where the bank ends in a conversation as text; 0 where anything of a request's own stands before it.

    Args:
        request: the question.
        text: its conversation, as the template of the model writes it.
    """
    for message in request.messages:
        if message.role == "system":
            continue
        first = message.parts[0]
        at = text.find(first.text) if first.section == "bank" and not first.frames else -1
        return at + len(first.text) if at >= 0 else 0
    return 0


def equal_tokens(one_T: Tensor, other_T: Tensor) -> int:
    """Return how many tokens two sequences, (T,) each, have in common from their beginning on."""
    n = min(len(one_T), len(other_T))
    differs = (one_T[:n] != other_T[:n]).nonzero()
    return int(differs[0]) if len(differs) else n


@dataclass
class SharedPrefix:
    """The beginning that was computed last; `ids`, (P,), are its tokens."""

    ids: Tensor
    cache: Any
    """transformers' DynamicCache of these tokens."""
    is_tuned: bool
    """Whether tuned weights were in the model: theirs are other keys."""

    def begins(self, ids_T: Tensor, *, is_tuned: bool) -> bool:
        """Return whether a request begins with it, token for token, and has more."""
        n = len(self.ids)
        return is_tuned == self.is_tuned and len(ids_T) > n and torch.equal(ids_T[:n], self.ids)


class PrefixCache:
    """Holds one beginning at a time; what is computed with it is what would be computed without it."""

    def __init__(self) -> None:
        self._held: SharedPrefix | None = None
        self.n_computed = 0
        """Tokens of prompts whose keys and values were computed: the shared ones, and what follows them."""
        self.n_reused = 0
        """Tokens of prompts whose keys and values were there."""

    @contextmanager
    def of(self, network: Any, inputs: dict[str, Tensor], shared_P: Tensor, *, is_tuned: bool) -> Iterator[Any]:
        """Lend the cache with which a request is answered; None where it shares nothing.

        What the request adds to the cache is cut off again. A request that breaks off leaves nothing behind.

        Args:
            network: the model.
            inputs: of the request, as `model_inputs` returns them, on the model's device.
            shared_P: (P,) its tokens up to the end of the bank; empty: nothing is shared.
            is_tuned: whether tuned weights answer.
        """
        ids_T = inputs["input_ids"][0]
        held, self._held = self._held, None
        if not len(shared_P):
            self.n_computed += len(ids_T)
            yield None
            self._held = held
            return
        if held is None or len(held.ids) != len(shared_P) or not held.begins(ids_T, is_tuned=is_tuned):
            held = None  # dropped before the next is computed: two of them may not fit
            held = SharedPrefix(shared_P, computed(network, shared_P), is_tuned)
            self.n_computed += len(shared_P)
        else:
            self.n_reused += len(shared_P)
        self.n_computed += len(ids_T) - len(shared_P)
        forget_positions(network)
        yield held.cache
        held.cache.crop(len(held.ids) - held.cache.get_seq_length())
        self._held = held


def computed(network: Any, ids_P: Tensor) -> Any:
    """Return the keys and values of tokens of text, (P,)."""
    forget_positions(network)
    cache = DynamicCache(config=network.config)
    mask_1P = torch.ones_like(ids_P)[None]
    network(input_ids=ids_P[None], attention_mask=mask_1P, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return cache


def forget_positions(network: Any) -> None:
    """Let a model that sees count positions anew: it remembers how far images of the request before moved them."""
    for module in network.modules():
        if hasattr(module, "rope_deltas"):
            module.rope_deltas = None
