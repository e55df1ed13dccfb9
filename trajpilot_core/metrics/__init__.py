"""The metrics of the tables, in their order: the only list, one for each thing that is scored.

A new metric is one record in `metrics/windows.py`; tables, ceilings, take scores, report and LaTeX use this
list. Definitions: docs/decisions/metrics.md; the paper (arXiv 2605.20388), experiments section, names them.
"""

import numpy as np

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.windows import SPECS

METRICS: dict[str, MetricSpec] = {spec.id: spec for spec in SPECS}
"""Metrics of planning windows, for METHODS and rows of plugins; pose sources have Mid and Full mAcc.

Actions of EPIC-KITCHENS-100 and shots of basketball have separate lists, `EPIC_METRICS` and `SHOT_METRICS`.
"""


def of_table(table: str) -> tuple[str, ...]:
    """Return the ids of the metrics of one printed table, `open`, `sequence` or `anticipation`."""
    return tuple(spec.id for spec in METRICS.values() if spec.table == table)


def with_ceiling(*, has_goal: bool = True) -> tuple[str, ...]:
    """Return the ids of the metrics whose best decision is known exactly in the simulated world.

    Rows without a goal also have the metrics of anticipation.
    """
    known = (spec for spec in METRICS.values() if spec.reached is not None and spec.expected is not None)
    return tuple(spec.id for spec in known if not (has_goal and spec.table == "anticipation"))


def window_values(labels: Codes, decoded: Codes, rankings: Codes, ids: tuple[str, ...] | None = None) -> Array:
    """Return (N, M): the values of M metrics for N windows of one horizon.

    Args:
        labels: (N, H) true codes, H >= 3.
        decoded: (N, H) codes of the predicted sequence.
        rankings: (N, H, K) ranked codes.
        ids: of metrics; None: all of `METRICS`, in order.
    """
    chosen = METRICS if ids is None else ids
    return np.stack([METRICS[id_].values(labels, decoded, rankings) for id_ in chosen], axis=1)
