"""Low-rank weights next to the projections of a model's language layers; the model's own weights stay as they are.

Source: Hu et al. 2021, LoRA, equation 3; layout and initial values as peft has them (docs/decisions/vlm.md).
Shapes: I and O width of what a projection reads and writes, R rank.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from schemas.vlm import VlmTuning
from trajpilot_core.errors import CheckpointError, InputError

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Source: paper."""
LANGUAGE = "model.language_model.layers."
"""How the names of language layers begin in Qwen3VLForConditionalGeneration; those of the tower that sees do not."""


class LowRank(nn.Module):
    """What is added to one projection: alpha / R times up(down(dropout(x))); zero at its start.

    Shapes: I and O width of what the projection reads and writes, R rank.
    """

    def __init__(self, reads: int, writes: int, cfg: VlmTuning) -> None:
        super().__init__()
        self.down_RI = nn.Parameter(torch.empty(cfg.rank, reads))
        self.up_OR = nn.Parameter(torch.zeros(writes, cfg.rank))
        nn.init.kaiming_uniform_(self.down_RI, a=math.sqrt(5))
        self.dropout = nn.Dropout(cfg.dropout)
        self.scale: float = cfg.alpha / cfg.rank

    def forward(self, read: Tensor) -> Tensor:
        """Return (..., O) in float32 for (..., I)."""
        dropped: Tensor = self.dropout(read.to(self.down_RI.dtype))
        return nn.functional.linear(nn.functional.linear(dropped, self.down_RI), self.up_OR) * self.scale


class TunedModel(nn.Module):
    """The added weights alone: parameters, checkpoints and kept states hold nothing of the model that they tune.

    `model` answers with them from then on. Its layers are recomputed in the backward pass where it allows that.
    """

    n_rounds: Tensor

    def __init__(self, network: Any, cfg: VlmTuning) -> None:
        super().__init__()
        found = language_projections(network)
        require_language(found)
        network.requires_grad_(False)
        if network.device.type == "cuda":
            network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        self._held = (network,)  # in a tuple, so that its weights are no parameters of this module
        self.is_on = True
        self.added = nn.ModuleDict()
        self.register_buffer("n_rounds", torch.zeros((), dtype=torch.long))  # how far the order is; resumes with it
        for name, projection in found.items():
            added = LowRank(projection.in_features, projection.out_features, cfg).to(projection.weight.device)
            self.added[name.replace(".", "/")] = added
            projection.register_forward_hook(self._adding(added))

    def _adding(self, added: LowRank) -> Any:
        """Return a hook that adds to what a projection, (..., I) to (..., O), has written, unless it is off."""

        def hook(module: nn.Module, read: tuple[Tensor, ...], written: Tensor) -> Tensor:
            if not self.is_on:
                return written
            more: Tensor = added(read[0])
            return written + more.to(written.dtype)

        return hook

    @contextmanager
    def switched_off(self) -> Iterator[None]:
        """Let the network answer as it does without them."""
        self.is_on = False
        try:
            yield
        finally:
            self.is_on = True

    @property
    def model(self) -> Any:
        """The network with what was added."""
        return self._held[0]

    def train(self, mode: bool = True) -> "TunedModel":
        """Switch the network, too: it recomputes its layers in training alone."""
        self.model.train(mode)
        super().train(mode)
        return self


def with_added(network: Any, cfg: VlmTuning, state: Mapping[str, Tensor]) -> TunedModel:
    """Return a network with weights that were tuned before, ready to answer.

    Args:
        network: the model that was tuned, on its device.
        cfg: how it was.
        state: of its `TunedModel`.

    Raises:
        CheckpointError: they are those of another model.
        InputError: the network has other projections.
    """
    tuned = TunedModel(network, cfg)
    try:
        tuned.load_state_dict(dict(state))
    except RuntimeError as error:
        raise CheckpointError(
            f"the tuned weights are another model's: {str(error).splitlines()[-1].strip()}"
        ) from error
    return tuned.eval()


def language_projections(network: Any) -> dict[str, nn.Linear]:
    """Return name -> projection of the language layers, in order of the model.

    Raises:
        InputError: a layer has other projections, as those with experts do.
    """
    found = {
        name: module
        for name, module in network.named_modules()
        if name.startswith(LANGUAGE) and name.rsplit(".", 1)[-1] in PROJECTIONS and isinstance(module, nn.Linear)
    }
    layers = int(network.config.get_text_config().num_hidden_layers)
    if len(found) != layers * len(PROJECTIONS):
        raise InputError(
            f"{type(network).__name__} has {len(found)} of the {layers * len(PROJECTIONS)} projections that {layers} "
            f"language layers have ({', '.join(PROJECTIONS)}); vlm.model must be of the kind qwen3_vl to be tuned here"
        )
    return found


def require_language(names: Iterable[str]) -> None:
    """Check that nothing but projections of language layers is tuned.

    Raises:
        CheckpointError: names what is.
    """
    for name in names:
        if not name.startswith(LANGUAGE) or name.rsplit(".", 1)[-1] not in PROJECTIONS:
            raise CheckpointError(f"{name} would be tuned, which is no projection of a language layer ({LANGUAGE}*)")
