"""A model in this process: loaded whole from a folder, or refused; it answers one request at a time, greedily."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import safetensors
import torch
import transformers
from torch import Tensor

from schemas.vlm import VlmReply, VlmRequest, VlmTuning
from trajpilot_core.arrays import Image
from trajpilot_core.engine.capacity import free_memory
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.memory import free_bytes
from trajpilot_core.vlm.local.folder import ADAPTER, ModelFolder
from trajpilot_core.vlm.local.inputs import chat_template, model_inputs, written
from trajpilot_core.vlm.local.prefix import PrefixCache, bank_end, equal_tokens
from trajpilot_core.vlm.local.rules import ImageRules, image_rules
from trajpilot_core.vlm.tuning.adapter import check_adapter
from trajpilot_core.vlm.tuning.low_rank import with_added


@dataclass(frozen=True)
class LocalModel:
    """Weights on a device, and what turns requests into their inputs."""

    folder: Path
    network: Any
    tokenizer: Any
    template: str
    """Of conversations."""
    rules: ImageRules | None
    """Of images; None: it reads text alone."""
    image_id: int | None
    longest: int
    """Tokens that it was made for."""
    device: str
    untuned: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Switches tuned weights off, where there are any."""
    prefix: PrefixCache = field(default_factory=PrefixCache)
    """Of the bank, where it stands first."""

    @torch.inference_mode()
    def answer(self, request: VlmRequest, frames: Mapping[str, Image]) -> VlmReply:
        """Answer one request with the likeliest token at each place.

        Args:
            request: the question; one with an adapter's name is answered with the tuned weights, others without.
            frames: digest -> (S, S, 3) RGB of every frame that it shows.

        Raises:
            InputError: it is longer than the model can read, is not greedy, or frames do not fit the model.
        """
        if request.temperature != 0:
            raise InputError(f"a request asks for temperature {request.temperature}; vlm.backend=transformers has 0")
        inputs = model_inputs(request, frames, self.tokenizer, self.template, self.rules, self.image_id)
        n_in = int(inputs["input_ids"].shape[1])
        if n_in + request.max_tokens > self.longest:
            raise InputError(
                f"a request ({request.question}) has {n_in:,} tokens and may be answered with {request.max_tokens}, "
                f"but {self.folder} reads {self.longest:,}; lower vlm.n_frames or vlm.size_px, or ask another model"
            )
        shared_P = self._shared(request, inputs["input_ids"][0]).to(self.device)
        inputs = {name: value.to(self.device) for name, value in inputs.items()}
        with (
            self._weights_for(request),
            self.prefix.of(self.network, inputs, shared_P, is_tuned=request.adapter is not None) as cache,
        ):
            told = {} if cache is None else {"past_key_values": cache}
            answer = self.network.generate(**inputs, **told, max_new_tokens=request.max_tokens)[0, n_in:]
        return VlmReply(
            request=request.digest(),
            text=self.tokenizer.decode(answer, skip_special_tokens=True),
            answered_by=request.model if request.adapter is None else f"{request.model} with {request.adapter}",
            tokens_in=n_in,
            tokens_out=len(answer),
        )

    def _shared(self, request: VlmRequest, ids_T: Tensor) -> Tensor:
        """Return the tokens up to the end of the bank, (P,); none where something of the request stands before it."""
        text = written(request, self.tokenizer, self.template, sees=self.rules is not None)
        end = bank_end(request, text)
        if not end:
            return ids_T[:0]
        told = self.tokenizer(text[:end], add_special_tokens=False, return_tensors="pt")["input_ids"][0]
        return ids_T[: min(equal_tokens(told, ids_T), len(ids_T) - 1)]

    def _weights_for(self, request: VlmRequest) -> AbstractContextManager[Any]:
        return self.untuned() if request.adapter is None else nullcontext()


def require_memory(folder: ModelFolder, device: str) -> None:
    """Refuse a model that cannot fit: its weights are read into the host's memory and moved to the device from there.

    What answering takes comes on top and is not stated: about 0.26 MB a token of the prompt for 32 billion weights.

    Raises:
        InputError: with its bytes and what is free.
    """
    needed, host = folder.weight_bytes, free_memory()
    places = [("the host", host)] if host is not None else []
    places += [(device, free_bytes(device))] if device.startswith("cuda") else []
    for name, free in places:
        if needed > free:
            raise InputError(
                f"the weights of {folder.path} have {needed:,} bytes, but {name} has {free:,} free; use a machine with "
                "more memory, a smaller model, or another vlm.backend"
            )


def require_peft() -> None:
    """Refuse tuned weights where what reads them is not installed.

    Raises:
        InputError: peft is missing.
    """
    if find_spec("peft") is None:
        raise InputError(
            "vlm.adapter needs peft, which is not installed; install the extra (`pip install -e .[vlm]`), or answer "
            "with a vlm.backend whose server has the adapter"
        )


@dataclass(frozen=True)
class TunedWeights:
    """What a tuning of this run left."""

    settings: VlmTuning
    state: Mapping[str, Tensor]
    """Of its `TunedModel`."""


def load_model(folder: ModelFolder, adapter: Path | None, device: str, tuned: TunedWeights | None = None) -> LocalModel:
    """Load a model, and its tuned weights where there are any. No code of the folder is run.

    Args:
        folder: of the model.
        adapter: folder that peft, or `trajpilot vlm tune`, wrote; None: none.
        device: the model answers on.
        tuned: weights that this run has tuned, in place of such a folder.

    Raises:
        InputError: it does not fit into the memory, peft or the template of conversations is missing.
        CheckpointError: the weights are not those of the kind that config.json names.
    """
    require_memory(folder, device)
    log: Any = transformers.logging
    log.disable_progress_bar()
    where = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder.path, **where)
        network, found = getattr(transformers, folder.kind).from_pretrained(
            folder.path, dtype="auto", use_safetensors=True, output_loading_info=True, **where
        )
    except (OSError, ValueError, RuntimeError) as error:
        first = str(error).splitlines()[0]
        raise CheckpointError(f"{folder.path} was refused as {folder.kind}: {first}; copy its files again") from error
    gone = sorted(found["missing_keys"])
    if gone:
        raise CheckpointError(
            f"{folder.path} lacks {len(gone)} tensors of {folder.kind} ({gone[0]} first), which would be random; its "
            "weights are of another kind or not whole"
        )
    about = network.config.get_text_config()
    ends = network.generation_config.eos_token_id
    ends = tokenizer.eos_token_id if ends is None else ends
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    # Nothing of the folder's own: it samples, and may weigh repetitions down.
    greedy: Any = transformers.GenerationConfig
    network.generation_config = greedy(do_sample=False, eos_token_id=ends, pad_token_id=pad)
    untuned: Callable[[], AbstractContextManager[Any]] = nullcontext
    if adapter is not None:
        network = _with_adapter(network, adapter)
        untuned = network.disable_adapter
    network = network.to(device).eval()
    if tuned is not None:
        untuned = with_added(network, tuned.settings, tuned.state).switched_off
    return LocalModel(
        folder=folder.path,
        network=network,
        tokenizer=tokenizer,
        template=chat_template(tokenizer, folder.path),
        rules=image_rules(folder.path) if folder.sees else None,
        image_id=network.config.image_token_id if folder.sees else None,
        longest=int(about.max_position_embeddings),
        device=device,
        untuned=untuned,
    )


def _with_adapter(network: Any, adapter: Path) -> Any:
    """Return the network with tuned weights, all of which it took.

    Raises:
        InputError: peft is missing.
        CheckpointError: they are those of another model, or not what their own digest says.
    """
    require_peft()
    check_adapter(adapter)
    import peft

    try:
        tuned = peft.PeftModel.from_pretrained(network, str(adapter), is_trainable=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"{adapter} was refused: {str(error).splitlines()[0]}; it is another model's") from error
    with safetensors.safe_open(adapter / ADAPTER[1], "pt") as file:
        held = set(file.keys())
    taken = set(peft.get_peft_model_state_dict(tuned))
    if held != taken:
        raise CheckpointError(
            f"{adapter} has {len(held)} tensors, of which the model knows {len(held & taken)}, and lacks "
            f"{len(taken - held)} of its own; it was tuned for another model"
        )
    return tuned
