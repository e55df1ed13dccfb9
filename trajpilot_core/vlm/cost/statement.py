"""What a run's questions cost, in figures and in words. Estimates are called so; nothing is measured. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.vlm import VlmConfig, VlmMachine
from trajpilot_core.engine.needs import GB, size_text
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.vlm.cost.asked import AskedKind, counted_kinds
from trajpilot_core.vlm.cost.tokens import TokenCount
from trajpilot_core.vlm.local.folder import READING, SEEING, model_folder
from trajpilot_core.vlm.local.shape import PAPERS, ModelShape, model_shape

PAPERS_SHAPE = "its size is not known here and taken to be that of the paper's, unverified"
HOUR_S = 3600.0
IN_PROCESS = GB
"""torch, the frames of a request and what the part that sees holds. Assumed."""


@dataclass(frozen=True)
class ModelMemory:
    """Bytes on the device that answers, at the longest prompt."""

    weights: int
    keys: int
    """Keys and values: of the longest prompt with its answer, and of a bank that is kept while segments are asked."""
    layers: int
    """What the layer at work holds."""

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.weights + self.keys + self.layers + IN_PROCESS

    def text(self) -> str:
        """State its parts."""
        parts = (("weights", self.weights), ("keys and values", self.keys), ("layers", self.layers))
        return ", ".join(f"{what} {size_text(n)}" for what, n in (*parts, ("the rest", IN_PROCESS)))


def model_memory(shape: ModelShape, kinds: Sequence[AskedKind]) -> ModelMemory:
    """Return what one model needs for its questions, asked one at a time.

    Args:
        shape: of the model.
        kinds: its questions.
    """
    longest = max((one.longest for one in kinds), default=0)
    whole = max((one.longest + one.most_new for one in kinds), default=0)
    kept = max((one.bank for one in kinds), default=0) if any(not one.bank for one in kinds) else 0
    beside = max((one.longest + one.most_new for one in kinds if not one.bank), default=0)
    keys = max(shape.kv_bytes(whole), shape.kv_bytes(kept + beside))
    # A token more is written as a new tensor next to the old one, a layer at a time.
    return ModelMemory(shape.weight_bytes, keys + keys // max(1, shape.layers), shape.layer_bytes(longest))


def hours(shape: ModelShape, kinds: Sequence[AskedKind], cfg: VlmConfig) -> tuple[float, float]:
    """Return the hours for the prompts, and at most for the answers, of one question at a time: an estimate.

    Args:
        shape: of the model.
        kinds: its questions; a bank that stands first is computed once.
        cfg: which machine is assumed, and whether the bank stands first.
    """
    machine: VlmMachine = cfg.assumed
    work = read = 0.0
    for one in kinds:
        shared = one.bank if cfg.bank_first else 0
        work += one.n * shape.prompt_flops(round(one.tokens) - shared, shared)
        read += one.n * one.most_new * float(shape.token_bytes(one.longest))
    work += shape.prompt_flops(max((one.bank for one in kinds), default=0)) if cfg.bank_first else 0.0
    return work / (machine.tflops * 1e12) / HOUR_S, read / (machine.gb_per_s * 1e9) / HOUR_S


def questions_text(kinds: Sequence[AskedKind], how: str) -> str:
    """State the questions and their tokens.

    Args:
        kinds: of all models.
        how: tokens were counted.
    """
    each = ", ".join(f"{one.question} {one.n:,}" for one in kinds)
    tokens = sum(one.n * one.tokens for one in kinds)
    new = sum(one.n * one.most_new for one in kinds)
    longest = max((one.longest for one in kinds), default=0)
    return (
        f"at most {sum(one.n for one in kinds):,} ({each}), less those answered before; prompts of {tokens:,.0f} "
        f"tokens together, the longest {longest:,} ({how}); answers of at most {new:,} tokens"
    )


def bytes_text(kinds: Sequence[AskedKind], cfg: VlmConfig) -> str:
    """State the bytes of all questions as requests: an estimate."""
    sent = sum(one.sent_bytes(cfg.size_px) for one in kinds)
    return f"about {size_text(round(sent))} as requests, an estimate: frames as PNG at half of their raw bytes"


def hours_text(found: tuple[float, float], cfg: VlmConfig) -> str:
    """State the hours, and on which assumptions."""
    prompts, answers = found
    order = "the bank computed once" if cfg.bank_first else "the bank computed for every question"
    return (
        f"an estimate, nothing was measured: {rounded(prompts)} h for prompts, at most {rounded(answers)} h for "
        f"answers, one at a time, {order}; at {cfg.assumed.tflops:g} TFLOP/s and {cfg.assumed.gb_per_s:g} GB/s "
        "(vlm.assumed)"
    )


def shape_of(cfg: VlmConfig, *, fills: bool) -> tuple[ModelShape, str]:
    """Return the shape of a model, and what has to be said of it.

    Args:
        cfg: of the stage.
        fills: the text model, in place of the one that sees.

    Raises:
        InputError: its folder, which shall answer in this process, is not whole.
    """
    setting, place, kinds = ("vlm.filler", cfg.filler, READING) if fills else ("vlm.model", cfg.model, SEEING)
    if cfg.backend == "transformers":
        return model_shape(model_folder(setting, place, kinds), setting), ""
    return PAPERS[not fills], f"; {PAPERS_SHAPE}"


def stated(inputs: Inputs, cfg: VlmConfig) -> list[str]:
    """Return what asking the questions of the stage `vlm` costs, in words.

    Args:
        inputs: of the stage.
        cfg: of the stage.

    Raises:
        InputError: as `shape_of`.
    """
    kinds = counted_kinds(inputs, cfg)
    said = [f"questions: {questions_text(kinds, TokenCount(cfg.model, cfg).how)}"]
    said += [] if cfg.backend == "transformers" else [f"bytes: {bytes_text(kinds, cfg)}"]
    for fills in (False, True):
        own = [one for one in kinds if one.fills is fills]
        if own:
            (shape, aside), name = shape_of(cfg, fills=fills), cfg.filler if fills else cfg.model
            memory = model_memory(shape, own)
            said.append(f"memory of {name}: {size_text(memory.bytes)}, an estimate: {memory.text()}{aside}")
            said.append(f"hours of {name}: {hours_text(hours(shape, own, cfg), cfg)}{aside}")
    return said


def rounded(found: float) -> str:
    """Write hours with two digits, or whole."""
    return f"{found:,.0f}" if found >= 10 else f"{found:.2g}"
