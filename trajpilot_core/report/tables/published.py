"""The paper's own numbers next to ours, on a real corpus only.

Source: arXiv 2605.20388, appendix "Full per-horizon results", open-vocabulary atomic planning on Ego-Exo4D
(`trajpilot_core/paper/tables`); percentages, no intervals, one seed.
"""

import math
from dataclasses import dataclass
from itertools import product

from schemas.config import ReportConfig
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.methods import METHODS
from trajpilot_core.paper.published import ATOMIC_CORPUS, HORIZONS, OPEN_METRICS, atomic_values
from trajpilot_core.report.tables.results import TOO_FEW, Results
from trajpilot_core.report.tables.table import number

TASK = CORPORA[ATOMIC_CORPUS]
"""Of which the values are published."""
SOURCE = "arXiv 2605.20388, full per-horizon results of open-vocabulary atomic planning"


@dataclass(frozen=True)
class PublishedComparison:
    """One number of ours next to the published one."""

    horizon: int
    variant: str
    metric: str
    ours: str
    interval: str
    published: str
    difference: str
    is_outside: bool
    """Our interval excludes the published value."""


def published_values() -> dict[tuple[int, str, str], float]:
    """Return (horizon, variant, metric) -> the published percentage, of the rows that this project has too."""
    values = atomic_values()
    theirs = {row for _, row, _ in values}
    rows = [one.id for one in METHODS if one.id in theirs]
    return {key: values[key] for key in product(HORIZONS, rows, OPEN_METRICS)}


def comparisons(results: Results, cfg: ReportConfig) -> list[PublishedComparison]:
    """Set every published value next to ours; nothing for a simulated corpus, another one, or another vocabulary."""
    if {m.corpus for m in results.metrics} != {TASK.ids} or cfg.corpus != TASK.name or cfg.is_closed:
        return []
    rows = []
    for (horizon, variant, metric), value in published_values().items():
        ours = results.get(variant, None, horizon, metric)
        if ours is not None:
            outside = not ours.low <= value <= ours.high
            rows.append(
                PublishedComparison(
                    horizon,
                    variant,
                    metric,
                    number(ours.value),
                    f"[{number(ours.low)}, {number(ours.high)}]" if math.isfinite(ours.high) else TOO_FEW,
                    f"{value:.2f}",
                    number(ours.value - value, is_signed=True),
                    outside,
                )
            )
    return rows
