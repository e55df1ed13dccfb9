"""The record of a metric of the tables.

Shapes: N windows of one horizon, H positions, K ranked answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trajpilot_core.arrays import Array, Codes

if TYPE_CHECKING:
    from trajpilot_core.simworld.inference.bayes_optimal import Decisions


@dataclass(frozen=True)
class MetricSpec:
    """Computation and table of one metric.

    The tables print its mean over windows. Where the best decision for it is known exactly, it has ceilings in the
    simulated world.
    """

    id: str
    """As printed."""
    description: str
    values: Callable[[Codes, Codes, Codes], Array]
    """(labels (N, H), decoded (N, H), rankings (N, H, K)) -> (N,)."""
    table: Literal["open", "sequence", "anticipation"]
    """open: the paper's open-vocabulary table; sequence: decoded sequences, the paper's tables of closed
    vocabularies; anticipation: only rows without a goal are scored on it."""
    higher_is_better: bool = True
    reached: "Callable[[Codes, Decisions], Array] | None" = None
    """(labels (N, H), exact decisions) -> (N,): value of the best decision."""
    expected: "Callable[[Decisions], Array] | None" = None
    """Exact decisions -> (N,): its expected value, by its own probabilities."""
