"""What planners of closed vocabularies have in common: their sizes, and what a loss is made of."""

from typing import NamedTuple

from torch import Tensor


class PlannerShape(NamedTuple):
    """Sizes that the data decide."""

    feature_width: int
    text_width: int
    actions: int
    tasks: int


class PlannerLoss(NamedTuple):
    """Loss of one batch, every part a scalar."""

    total: Tensor
    """Weighted sum of the terms; the one to minimise."""
    terms: dict[str, Tensor]
    """Name -> its value before the weight."""
