"""How many tables Scorer+ holds: it weighs every label against every other, so its memory grows with the square of V.

The one count of them: what stages state that they need and what Scorer+ refuses both follow from it. Nothing else of
the pipeline has a V x V table (docs/decisions/scorer-plus.md). Imports no torch.

Shapes: V labels, T takes that a chain was fitted on, B queries of a batch, H steps.
"""

from typing import NamedTuple

FLOAT = 4
"""Bytes of a number."""


class PlusTables(NamedTuple):
    """How many tables of each kind there are."""

    labels: int
    """(V, V) float32."""
    takes: int
    """(T, V) float32."""


KEPT = PlusTables(2, 2)
"""The statistics of one chain."""
FITTED = PlusTables(6, 6)
"""In addition, while one chain's statistics are made of its effects."""
LEARNED = PlusTables(6, 5)
"""In addition, in a step of the training: five counted on a CPU at 3,000 and 5,000 labels, one that is turned round."""
ANSWERED = PlusTables(9, 3)
"""What is made of the statistics of one chain to answer, and what that needs meanwhile."""
STATES = 36
"""Copies of (H, V, B) float32 that a step keeps for its gradients. Counted likewise."""


def table_bytes(tables: PlusTables, labels: int, takes: int) -> int:
    """Return the bytes of tables of V `labels` and T `takes`."""
    return FLOAT * labels * (tables.labels * labels + tables.takes * takes)


def step_bytes(labels: int, takes: int, queries: int, horizon: int) -> int:
    """Return the bytes that a step of the training holds in addition to the statistics.

    Args:
        labels: V.
        takes: T.
        queries: B of the step.
        horizon: H.
    """
    return table_bytes(LEARNED, labels, takes) + STATES * FLOAT * horizon * labels * queries
