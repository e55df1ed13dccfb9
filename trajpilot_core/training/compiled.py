"""Functions that torch compiles for a GPU if the run enables it, with a fallback to the plain function.

Never compiled on a CPU. One CUDA graph is recorded per shape, so that a step of a small model is one launch instead of
hundreds; random numbers are the same as without it. The speedup has not been measured on a GPU.
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
"""Options of torch.compile: replay CUDA graphs, and sample dropout as the plain model does."""
log = logging.getLogger("trajpilot")


class Compiled(Generic[A, T]):
    """A function of one argument: compiled, or plain once the compiled one has failed.

    The compiler's cache is cleared for each training: torch keeps eight versions of a function and then silently stops
    compiling.
    """

    def __init__(self, plain: Callable[[A], T], device: str, name: str) -> None:
        self.plain, self.device, self.name = plain, device, name
        self.fast: Callable[[A], T] | None = None
        if COMPILES.get() and device.startswith("cuda"):
            torch.compiler.reset()
            self.fast = torch.compile(plain, dynamic=False, options=OPTIONS)

    def use(self, work: Callable[[Callable[[A], T]], R]) -> R:
        """Return `work(function)`; if the compiled function fails, `work` runs again with the plain one.

        Args:
            work: may be called twice; a second call must overwrite everything that the first one changed.
        """
        if self.fast is None:
            return work(self.plain)
        before = _random_state(self.device)
        try:
            return work(self.fast)
        except RuntimeError as error:  # from the compiler, CUDA, or the function itself, which then raises it again
            self.fast = None
            message = next(iter(str(error).splitlines()), type(error).__name__)
            log.warning(
                "%s: compiling failed (%s: %s); continuing uncompiled", self.name, type(error).__name__, message
            )
        _restore(before, self.device)
        return work(self.plain)


def _random_state(device: str) -> list[Tensor]:
    """Return the random states, each of shape (n,), of the CPU and of a GPU if there is one."""
    on_gpu = [torch.cuda.get_rng_state(device)] if torch.cuda.is_available() else []
    return [torch.get_rng_state(), *on_gpu]


def _restore(states: list[Tensor], device: str) -> None:
    """Restore the states of `_random_state`."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)
