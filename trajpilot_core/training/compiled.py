"""Functions that torch compiles for a GPU where a run asks for it, and that go on as they are where that fails.

Never on a CPU. A graph of CUDA is recorded per shape, so that a step of a small model is one launch instead of
hundreds; random numbers are drawn as without it. No GPU was at hand: nothing of it was measured.
"""

import logging
from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

from trajpilot_core.runtime import COMPILES

A = TypeVar("A")
T = TypeVar("T")
R = TypeVar("R")
OPTIONS: dict[str, str | int | bool | Callable[..., object]] = {"triton.cudagraphs": True, "fallback_random": True}
"""Of torch's compiler: replay graphs of CUDA, and draw dropout as the plain model does."""
log = logging.getLogger("trajpilot")


class Compiled(Generic[A, T]):
    """A function of one argument, compiled until it fails, and plain from then on.

    What was compiled for another training is forgotten: torch keeps eight versions of a function and ends compiling
    without a word after that.
    """

    def __init__(self, plain: Callable[[A], T], device: str, name: str) -> None:
        self.plain, self.device, self.name = plain, device, name
        self.fast: Callable[[A], T] | None = None
        if COMPILES.get() and device.startswith("cuda"):
            torch.compiler.reset()
            self.fast = torch.compile(plain, dynamic=False, options=OPTIONS)

    def use(self, work: Callable[[Callable[[A], T]], R]) -> R:
        """Return what `work` makes of the function; it is done again with the plain one where the compiled one fails.

        Args:
            work: may be called twice; whatever it has changed by then, it must change again in the same way.
        """
        if self.fast is None:
            return work(self.plain)
        before = _random_state(self.device)
        try:
            return work(self.fast)
        except RuntimeError as error:  # of the compiler, of CUDA, or of the function itself, which then raises it again
            self.fast = None
            said = next(iter(str(error).splitlines()), type(error).__name__)
            log.warning("%s is not compiled: %s (%s); it goes on as it is", self.name, type(error).__name__, said)
        _restore(before, self.device)
        return work(self.plain)


def _random_state(device: str) -> list[Tensor]:
    """Return the states of what draws random numbers, each of shape (n,): the CPU, and a GPU where one is there."""
    on_gpu = [torch.cuda.get_rng_state(device)] if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *on_gpu]


def _restore(states: list[Tensor], device: str) -> None:
    """Put the states of `_random_state` back."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
