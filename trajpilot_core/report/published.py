"""The paper's own numbers beside ours, on a real corpus only.

Source of the file: arXiv 2605.20388, appendix "Full per-horizon results", open-vocabulary atomic planning on Ego-Exo4D;
percentages, no intervals, one seed.
"""

import csv
import math
from dataclasses import dataclass
from importlib import resources

from trajpilot_core.report.tables import TOO_FEW, Results, number

FILE = "published_open_vocabulary.csv"
CORPUS = "egoexo4d"
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
    """Return (horizon, variant, metric) -> the published percentage."""
    text = resources.files("trajpilot_core.report").joinpath("templates", FILE).read_text()
    return {
        (int(row["horizon"]), row["variant"], metric): float(value)
        for row in csv.DictReader(text.splitlines())
        for metric, value in row.items()
        if metric not in ("horizon", "variant")
    }


def comparisons(results: Results) -> list[Comparison]:
    """Set every published value beside ours; nothing for a simulated or another corpus."""
    if {m.corpus for m in results.metrics} != {CORPUS}:
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
