"""Requests that models in this process answer, on the worker's device: one model at a time, loaded when it is asked."""

import gc
from collections.abc import Iterator, Mapping, Sequence

import torch

from schemas.vlm import VlmConfig, VlmReply, VlmRequest
from trajpilot_core.arrays import Image
from trajpilot_core.vlm.local.folder import adapter_folder, folders_of
from trajpilot_core.vlm.local.model import LocalModel, TunedWeights, load_model, require_memory, require_peft


class InProcessClient:
    """Holds the model that was asked last."""

    is_stub = False

    def __init__(self, cfg: VlmConfig, device: str, tuned: TunedWeights | None = None) -> None:
        self._cfg, self._device, self._tuned = cfg, device, tuned
        self._held: tuple[bool, LocalModel] | None = None
        """Whether the held model is the one that fills middles, and the model."""
        self._is_ready = False
        self.loaded: list[str] = []
        """Folders, in the order in which they were loaded."""

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answer to every request: first of the model that sees, then of the one that fills middles.

        Raises:
            InputError: a model is missing or not whole, does not fit into the memory, or cannot read a request.
            CheckpointError: weights are of another kind than stated.
        """
        if requests and not self._is_ready:
            self._require_all()
        for request in sorted(requests, key=_is_fill):
            yield self._model_of(request).answer(request, frames)

    def _require_all(self) -> None:
        """Refuse before the first answer what would be refused hours later."""
        for folder in folders_of(self._cfg):
            require_memory(folder, self._device)
        if adapter_folder(self._cfg) is not None:
            require_peft()
        self._is_ready = True

    def _model_of(self, request: VlmRequest) -> LocalModel:
        """Return the model that a request is for; another one is dropped before it is loaded."""
        fills = _is_fill(request)
        if self._held is None or self._held[0] != fills:
            self._held = None
            gc.collect()
            if self._device.startswith("cuda"):
                torch.cuda.empty_cache()
            folder = folders_of(self._cfg)[fills]
            adapter, tuned = (None, None) if fills else (adapter_folder(self._cfg), self._tuned)
            model = load_model(folder, adapter, self._device, tuned)
            self._held = fills, model
            self.loaded.append(str(folder.path))
        return self._held[1]


def _is_fill(request: VlmRequest) -> bool:
    """Return whether a request is for the text model."""
    return request.question in ("fill", "continue")
