"""What the two kinds of events have in common: a shot (data/shots.py) and an action (data/action_events.py).

Shapes: N events, C tokens per feature, D feature width.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

TRAIN, DEV, TEST = range(3)
"""Indices of the splits (data/planning.py, SPLITS)."""
BEFORE, DURING = range(2)
"""Parts of the head motion."""


@dataclass(frozen=True)
class Events:
    """N events: what was seen before each one, and the head motion before and during it."""

    take_ids: tuple[str, ...]
    """All takes."""
    take: Tensor
    """(N,) long, index into take_ids."""
    split: Tensor
    """(N,) long."""
    take_split: Tensor
    """(takes,) long."""
    fold: Tensor
    """(takes,) long (data/planning.py, NO_FOLD)."""
    context: Tensor
    """(N, C, D) float16, raw: features before the event, input of the predictor."""
    motions: Tensor
    """(N, 2, 16, 6) float32, raw: head motion before and during the event; zeros if there is none."""
    has_motion: Tensor
    """(N, 2) bool."""

    def __len__(self) -> int:
        return len(self.take)

    def rows(self, split: int) -> Tensor:
        """Return (n,) long: the events of a split, ascending."""
        return (self.split == split).nonzero()[:, 0]

    def to(self, device: str) -> Self:
        """Return the same with every tensor on `device`."""
        moved: dict[str, Any] = {name: value.to(device) for name, value in vars(self).items() if torch.is_tensor(value)}
        return replace(self, **moved)
