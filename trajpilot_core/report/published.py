"""The paper's own numbers beside ours, on a real corpus only.

Source: arXiv 2605.20388, appendix "Full per-horizon results", open-vocabulary atomic planning on Ego-Exo4D
(`trajpilot_core/reproduction/tables`); percentages, no intervals, one seed.
"""

import math
from dataclasses import dataclass

from schemas.config import ReportConfig
from trajpilot_core.report.tables import TOO_FEW, Results, number
from trajpilot_core.reproduction.published import ATOMIC, HORIZONS, OPEN_METRICS, published

VARIANTS = ("no_traj", "scorer", "oracle")
CORPUS, READER = "egoexo4d", "egoexo4d_atomic"
SOURCE = "arXiv 2605.20388, full per-horizon results of open-vocabulary atomic planning"


@dataclass(frozen=True)
class Comparison:
    """One number of ours beside the published one."""

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
    paper = published()
    return {
        (h, variant, metric): paper.value(ATOMIC, variant, metric, h)
        for h in HORIZONS
        for variant in VARIANTS
        for metric in OPEN_METRICS
    }


def comparisons(results: Results, cfg: ReportConfig) -> list[Comparison]:
    """Set every published value beside ours; nothing for a simulated corpus, another one, or another vocabulary."""
    if {m.corpus for m in results.metrics} != {CORPUS} or cfg.corpus != READER or cfg.is_closed:
        return []
    rows = []
    for (horizon, variant, metric), value in published_values().items():
        ours = results.get(variant, None, horizon, metric)
        if ours is not None:
            outside = not ours.low <= value <= ours.high
            rows.append(
                Comparison(
                    horizon,
                    variant,
                    metric,
                    number(ours.value),
                    f"[{number(ours.low)}, {number(ours.high)}]" if math.isfinite(ours.high) else TOO_FEW,
                    f"{value:.2f}",
                    number(ours.value - value, signed=True),
                    outside,
                )
            )
    return rows
