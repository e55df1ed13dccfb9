"""What the stage `vlm` needs: frames and answers, and where models answer in the process, the largest of them."""

from schemas.vlm import VlmConfig
from trajpilot_core.engine.needs import MB, Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.errors import InputError
from trajpilot_core.vlm.cost.asked import assumed_kinds
from trajpilot_core.vlm.cost.statement import ModelMemory, model_memory
from trajpilot_core.vlm.cost.tuning import TuningMemory, tuning_memory
from trajpilot_core.vlm.local.folder import TUNABLE, folders_of, model_folder
from trajpilot_core.vlm.local.shape import model_shape

TUNING_LOWER = ("vlm.model", "vlm.n_frames", "vlm.tuning.rank")
LOWER = ("vlm.model", "vlm.filler", "vlm.n_frames")
"""Settings whose smaller values need less memory for a model."""


def vlm_needs(sizes: CorpusSizes, cfg: VlmConfig, machine: NeedsMachine) -> Needs:
    """State what the frames of a take and the answers need, and the largest model; models are held one at a time.

    Weights are read into the host's memory and moved from there. Prompts have the tokens that are assumed at these
    sizes: the pre-flight counts them with the tokenizer.
    """
    a_segment = 3 * cfg.n_frames * cfg.size_px**2
    segments = sizes.segments // max(1, sizes.takes) * 4
    words = 60 * sizes.labels + 200 * sizes.all_windows
    own, disk = 800 * MB + segments * a_segment + words, Need(2 * 400 * sizes.all_windows)
    models = memory_of_models(sizes, cfg)
    if not models:
        return Needs(Need(own, ("vlm.size_px",)), disk=disk)
    largest = max(models, key=lambda one: one.bytes)
    if machine.is_gpu:
        host = Need(own + max(one.weights for one in models), LOWER)
        return Needs(host, device=Need(largest.bytes, LOWER), disk=disk)
    return Needs(Need(own + largest.bytes, LOWER), disk=disk)


def tuning_needs(sizes: CorpusSizes, cfg: VlmConfig, machine: NeedsMachine) -> Needs:
    """State what one segment's question takes in training, and the checkpoints of the added weights."""
    words = 200 * MB + 60 * sizes.segments
    memory = memory_of_tuning(sizes, cfg, is_gpu=machine.is_gpu) if cfg.tuning.is_asked else None
    if memory is None:
        return Needs(Need(words))
    scratch, disk = Need(2 * memory.checkpoint), Need(memory.added)
    if machine.is_gpu:
        host = Need(words + memory.weights + memory.checkpoint, TUNING_LOWER)
        return Needs(host, device=Need(memory.bytes, TUNING_LOWER), disk=disk, scratch=scratch)
    return Needs(Need(words + memory.bytes + memory.checkpoint, TUNING_LOWER), disk=disk, scratch=scratch)


def memory_of_tuning(sizes: CorpusSizes, cfg: VlmConfig, *, is_gpu: bool) -> TuningMemory | None:
    """Return what a tuning needs; None where the folder is not there or not whole, which the pre-flight reports."""
    try:
        shape = model_shape(model_folder("vlm.model", cfg.model, TUNABLE), "vlm.model")
        kinds = assumed_kinds(sizes, cfg.replace(rows=("qwen_sft_llm",)))
    except InputError:
        return None
    segment = next(one for one in kinds if one.question == "segment")
    return tuning_memory(shape, segment.longest, cfg.tuning, recomputes=is_gpu)


def memory_of_models(sizes: CorpusSizes, cfg: VlmConfig) -> list[ModelMemory]:
    """Return what each model in the process needs; nothing where another program answers.

    Nor where a folder is not there or not whole, which the pre-flight reports by name.
    """
    if cfg.backend != "transformers" or not cfg.rows:
        return []
    try:
        kinds = assumed_kinds(sizes, cfg)
        return [
            model_memory(model_shape(folder, ""), [one for one in kinds if one.fills is not folder.sees])
            for folder in folders_of(cfg)
        ]
    except InputError:
        return []
