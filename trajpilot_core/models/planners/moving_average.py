"""Exponential moving average of weights over the steps of an optimiser, as a module, so that checkpoints hold it."""

import copy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

Averaged = TypeVar("Averaged", bound=nn.Module)


class MovingAverage(nn.Module, Generic[Averaged]):
    """A copy of a module whose parameters follow the module's; no optimiser changes them.

    Its state, the number of steps included, is in the state_dict: a training that goes on from a checkpoint ends with
    the same bits. Until `start` steps are done it copies, every `every` steps; from then on it averages at those steps.
    Source: PDPP (github.com/MCG-NJU/PDPP at e9fd98a), utils/training.py, Trainer.
    """

    steps: Tensor
    """Updates so far, long scalar."""

    def __init__(self, module: Averaged, decay: float, every: int, start: int) -> None:
        super().__init__()
        self.decay, self.every, self.start = decay, every, start
        self.module = copy.deepcopy(module).requires_grad_(False)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Follow `module`; to be called after every step of its optimiser."""
        step = int(self.steps)
        self.steps += 1
        if step % self.every:
            return
        for own, current in zip(self.module.parameters(), module.parameters(), strict=True):
            if step < self.start:
                own.copy_(current)
            else:
                own.mul_(self.decay).add_((1 - self.decay) * current)
