"""What tuning the recogniser costs: memory of one segment in training, and work. Arithmetic; imports no torch."""

from dataclasses import dataclass

from schemas.vlm import VlmConfig, VlmTuning
from trajpilot_core.engine.needs import GB, size_text
from trajpilot_core.vlm.cost.statement import HOUR_S, rounded
from trajpilot_core.vlm.local.shape import ModelShape

STATES = 4
"""Numbers of an added weight in training: itself, its gradient, two moments; each of 4 bytes."""
KEPT_COPIES = 4
"""Of the added weights in a checkpoint: themselves, two moments, the best round."""
PASSES = 3
"""Forward, forward again, backward: a frozen weight has no gradient, so that each costs about a forward pass."""
IN_PROCESS = GB


@dataclass(frozen=True)
class TuningMemory:
    """Bytes on the device that tunes, at one segment."""

    weights: int
    layers: int
    """What the backward pass needs of the layers."""
    added: int
    """Of the low-rank weights alone."""

    @property
    def bytes(self) -> int:
        """All of it."""
        return self.weights + self.layers + STATES * self.added + IN_PROCESS

    @property
    def checkpoint(self) -> int:
        """Bytes of a checkpoint."""
        return KEPT_COPIES * self.added

    def text(self) -> str:
        """State its parts."""
        states = STATES * self.added
        parts = (
            ("weights", self.weights),
            ("layers", self.layers),
            ("added weights", states),
            ("the rest", IN_PROCESS),
        )
        return ", ".join(f"{what} {size_text(n)}" for what, n in parts)


def tuning_memory(shape: ModelShape, tokens: int, cfg: VlmTuning, *, recomputes: bool) -> TuningMemory:
    """Return what a tuning needs.

    Args:
        shape: of the model.
        tokens: of a question and its answer.
        cfg: of the tuning.
        recomputes: layers are computed again in the backward pass, as on a GPU; else each keeps what it held.
    """
    kept = tokens * shape.width * shape.item_bytes if recomputes else shape.layer_bytes(tokens)
    return TuningMemory(
        shape.weight_bytes, shape.layers * kept + 2 * shape.layer_bytes(tokens), 4 * added_numbers(shape, cfg.rank)
    )


def added_numbers(shape: ModelShape, rank: int) -> int:
    """Return how many numbers are added: two factors of seven projections of every layer."""
    asked, known = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
    sides = 2 * (shape.width + asked) + 2 * (shape.width + known) + 3 * (shape.width + shape.inner)
    return rank * sides * shape.layers


def tuning_text(shape: ModelShape, n_pairs: int, tokens: int, cfg: VlmConfig) -> str:
    """State the work of a tuning in hours: an estimate, on the assumed machine."""
    work = PASSES * shape.prompt_flops(tokens) * n_pairs * cfg.tuning.passes
    found = work / (cfg.assumed.tflops * 1e12) / HOUR_S
    return (
        f"{n_pairs:,} segments of about {tokens:,} tokens; an estimate, nothing was measured: {rounded(found)} h at "
        f"{cfg.assumed.tflops:g} TFLOP/s (vlm.assumed), without decoding and dev"
    )
