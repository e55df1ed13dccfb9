"""The metrics of the tables, in their order: the only list, a family for each thing that is scored.

A new metric is one record in one file and one line here; tables, checks, ceilings, take scores, report and LaTeX
follow. Definitions: docs/decisions/metrics.md; the paper (arXiv 2605.20388), experiments section, names them.
"""

import numpy as np

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.metrics import after_start, exact, overlap, recall
from trajpilot_core.metrics.base import MetricSpec

METRICS: dict[str, MetricSpec] = {
    spec.id: spec
    for spec in (
        recall.M1,
        recall.M5,
        exact.MSEQ,
        recall.F1,
        recall.F5,
        exact.FSEQ,
        exact.SR,
        exact.MID_MACC,
        exact.FULL_MACC,
        overlap.MIOU,
        overlap.ED,
        after_start.A1,
        after_start.A5,
        after_start.ASEQ,
    )
}
"""Of planning windows: what METHODS, and rows of plugins, are scored on. Pose sources are, too (Mid and Full mAcc).

Actions of EPIC-KITCHENS-100 and shots of basketball have lists of their own, `EPIC_METRICS` and `SHOT_METRICS`.
"""


def of_table(table: str) -> tuple[str, ...]:
    """Return the ids of the metrics of one printed table, `open`, `sequence` or `anticipation`."""
    return tuple(spec.id for spec in METRICS.values() if spec.table == table)


def with_ceiling(*, has_goal: bool = True) -> tuple[str, ...]:
    """Return the ids of the metrics of which the best decision is known exactly in the simulated world.

    Args:
        has_goal: of rows that are given a goal; those without one have the metrics of anticipation, too.
    """
    known = (spec for spec in METRICS.values() if spec.reached is not None and spec.expected is not None)
    return tuple(spec.id for spec in known if not (has_goal and spec.table == "anticipation"))


def window_values(labels: Codes, decoded: Codes, rankings: Codes, ids: tuple[str, ...] | None = None) -> Array:
    """Return (N, M): the values of M metrics for N windows of one horizon.

    Args:
        labels: (N, H) true codes, H >= 3.
        decoded: (N, H) codes of the sequence that the row stands for.
        rankings: (N, H, K) ranked codes.
        ids: of metrics; None: all of `METRICS`, in their order.
    """
    chosen = METRICS if ids is None else ids
    return np.stack([METRICS[id_].values(labels, decoded, rankings) for id_ in chosen], axis=1)
