"""Pictures of the pages: charts of the report, side by side in one SVG file that carries its own colours.

Equal numbers give equal bytes.
"""

import math
from collections.abc import Sequence

from markupsafe import Markup

from trajpilot_core.claims.statistics import Estimate
from trajpilot_core.report.charts import Point, Series
from trajpilot_core.report.sheet import Key, Panel, keys_of
from trajpilot_core.report.sheet import sheet as lay_out

__all__ = ["MARKS", "Key", "Panel", "bare_line", "keys_of", "sheet", "whisker"]
STYLE = Markup("""
svg { font-family: "DejaVu Sans", Arial, sans-serif; }
.page { fill: #ffffff; }
.title { font-size: 13px; font-weight: 600; fill: #1d2127; }
.key { font-size: 11.5px; fill: #1d2127; }
.grid { stroke: #dcdcd4; stroke-width: 1; }
.zero { stroke: #1d2127; stroke-width: 1.4; }
.tick { font-size: 10.5px; fill: #5c6570; }
.label { font-size: 11px; fill: #5c6570; }
.line { fill: none; stroke: currentColor; stroke-width: 1.9; }
.line g { fill: currentColor; }
.line circle, .line rect, .line path { fill: currentColor; stroke: #ffffff; stroke-width: .8; }
.band { fill: currentColor; opacity: .14; stroke: none; }
.no_traj { color: #5b6470; }
.endpoint_traj { color: #c47f00; }
.scorer { color: #0072b2; }
.scorer_plus { color: #b03060; }
.oracle { color: #009e73; }
.pool_mean { color: #b8508a; }
.knn_labels { color: #d55e00; }
.top1 { color: #7a6212; }
.shuffled { color: #6f4fc0; }
.seed0 { color: #0072b2; }
.seed1 { color: #c47f00; }
.seed2 { color: #009e73; }
.ceiling polyline { stroke-dasharray: 3 3; stroke-width: 1.4; }
""")
MARKS = {
    "no_traj": "circle", "endpoint_traj": "triangle", "scorer": "square", "scorer_plus": "diamond", "oracle": "diamond",
    "pool_mean": "circle", "knn_labels": "square", "top1": "triangle", "shuffled": "diamond",
}  # fmt: skip


def sheet(panels: Sequence[Panel], keys: Sequence[Key], columns: int = 3) -> bytes:
    """Lay charts out in rows in the pages' own colours; see `report.sheet.sheet`."""
    return lay_out(panels, keys, STYLE, columns)


def whisker(x: float, figure: Estimate) -> Point:
    """Return a point with its interval; where there is none only the point is drawn."""
    if math.isfinite(figure.low) and math.isfinite(figure.high):
        return Point(x, figure.value, figure.low, figure.high)
    return Point(x, figure.value, figure.value, figure.value, has_interval=False)


def bare_line(name: str, style: str, points: Sequence[tuple[float, float]], mark: str = "none") -> Series:
    """Return a line without intervals."""
    return Series(name, style, tuple(Point(x, y, y, y, has_interval=False) for x, y in points), mark, has_band=False)
