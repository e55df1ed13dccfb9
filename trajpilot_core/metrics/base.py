"""What a metric of the tables is.

Shapes: N windows of one horizon, H positions, K ranked answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.simworld.inference.bayes_optimal import Decisions


@dataclass(frozen=True)
class MetricSpec:
    """How one metric is computed, read and checked.

    Its mean over windows is what the tables print. Where the decision that is best for it is known exactly, the
    simulated world's ceilings are drawn for it, too.
    """

    id: str
    """As printed."""
    description: str
    values: Callable[[Codes, Codes, Codes], Array]
    """(labels (N, H), decoded (N, H), rankings (N, H, K)) -> (N,)."""
    table: Literal["open", "sequence", "anticipation"]
    """open: the paper's open-vocabulary table; sequence: decoded sequences, the paper's tables of closed
    vocabularies; anticipation: rows without a goal, and no other, are scored on it."""
    reads: Literal["ranking", "sequence"] = "ranking"
    """Which answers it scores: the ranked labels of each step, or the decoded sequence. Where steps are decoded
    together these differ, and no metric of the one bounds one of the other."""
    higher_is_better: bool = True
    shortest: int = 3
    """Horizon from which on it is defined; shorter windows have no such value."""
    at_most: tuple[str, ...] = ()
    """Metrics that it cannot exceed, by their definitions; every evaluation checks it."""
    reached: Callable[[Codes, Decisions], Array] | None = None
    """(labels (N, H), exact decisions) -> (N,): what the best decision gets."""
    expected: Callable[[Decisions], Array] | None = None
    """Exact decisions -> (N,): what it gets on average, by its own probabilities."""
