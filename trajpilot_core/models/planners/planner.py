"""What planners of closed vocabularies have in common: their sizes, and what a loss is made of."""

import json
from typing import NamedTuple, Self

from torch import Tensor


class PlannerShape(NamedTuple):
    """Sizes that the data decide."""

    feature_width: int
    text_width: int
    actions: int
    tasks: int

    def to_json(self) -> str:
        """Return the sizes as JSON, for what holds for all planners of an entry."""
        return json.dumps(self._asdict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the sizes back."""
        return cls(**json.loads(text))


class PlannerLoss(NamedTuple):
    """Loss of one batch, every part a scalar."""

    total: Tensor
    """Weighted sum of the terms; the one to minimise."""
    terms: dict[str, Tensor]
    """Name -> its value before the weight."""
