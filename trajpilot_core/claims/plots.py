"""Pictures of the pages: charts of the report, side by side in one SVG file that carries its own colours.

Equal numbers give equal bytes.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from trajpilot_core.claims.statistics import Estimate
from trajpilot_core.report.charts import HEIGHT, WIDTH, Point, Series, legend_mark

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
GAP, TITLE, KEY, KEY_WIDTH = 16, 26, 22, 190
"""Pixels between charts, above a chart, and of an entry of the legend: height and width."""
MARKS = {
    "no_traj": "circle", "endpoint_traj": "triangle", "scorer": "square", "scorer_plus": "diamond", "oracle": "diamond",
    "pool_mean": "circle", "knn_labels": "square", "top1": "triangle", "shuffled": "diamond",
}  # fmt: skip


class Panel(NamedTuple):
    """One chart with its title."""

    title: str
    chart: Markup


class Key(NamedTuple):
    """One entry of the legend: the classes and the mark of a line."""

    name: str
    style: str
    mark: str


def keys_of(series: Sequence[Series]) -> list[Key]:
    """Return the legend of some lines."""
    return [Key(line.name, line.style, line.mark) for line in series]


def sheet(panels: Sequence[Panel], keys: Sequence[Key], columns: int = 3) -> bytes:
    """Lay charts out in rows, the legend below them.

    Args:
        panels: the charts, as `report.charts` draws them.
        keys: the legend of all of them.
        columns: charts side by side.
    """
    columns = max(1, min(columns, len(panels)))
    rows = -(-len(panels) // columns)
    width = columns * (WIDTH + GAP) + GAP
    top = rows * (TITLE + HEIGHT + GAP)
    per_line = width // KEY_WIDTH
    height = top + KEY * -(-len(keys) // per_line) + GAP
    parts = [_panel(panel, index % columns, index // columns) for index, panel in enumerate(panels)]
    parts += [_key(key, index % per_line, top + KEY * (index // per_line)) for index, key in enumerate(keys)]
    return str(
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}">'
            '<style>{style}</style><rect class="page" x="0" y="0" width="{w}" height="{h}"/>{parts}</svg>\n'
        ).format(w=width, h=height, style=STYLE, parts=Markup("\n").join(parts))
    ).encode()


def _panel(panel: Panel, column: int, row: int) -> Markup:
    """Place one chart under its title; where nothing was drawn it says so."""
    x, y = GAP + column * (WIDTH + GAP), row * (TITLE + HEIGHT + GAP) + TITLE
    heading = Markup('<text class="title" x="{x}" y="{y}">{title}</text>').format(x=x, y=y - 8, title=panel.title)
    if not panel.chart.startswith("<svg "):
        return heading + Markup('<text class="label" x="{x}" y="{y}">not run</text>').format(x=x, y=y + 20)
    return heading + _placed(panel.chart, x, y, WIDTH, HEIGHT)


def _placed(drawing: Markup, x: float, y: float, width: int, height: int) -> Markup:
    """Place an SVG element inside another."""
    frame = Markup('<svg x="{x}" y="{y}" width="{w}" height="{h}" ').format(x=x, y=y, w=width, h=height)
    return frame + drawing[len("<svg ") :]


def _key(key: Key, column: int, y: int) -> Markup:
    """Place one entry of the legend."""
    x = GAP + column * KEY_WIDTH
    text = Markup('<text class="key" x="{x}" y="{y}">{name}</text>').format(x=x + 36, y=y + 14, name=key.name)
    return _placed(legend_mark(key.style, key.mark), x, y + 4, 30, 12) + text


def whisker(x: float, figure: Estimate) -> Point:
    """Return a point with its interval; where there is none only the point is drawn."""
    if math.isfinite(figure.low) and math.isfinite(figure.high):
        return Point(x, figure.value, figure.low, figure.high)
    return Point(x, figure.value, figure.value, figure.value, has_interval=False)


def bare_line(name: str, style: str, points: Sequence[tuple[float, float]], mark: str = "none") -> Series:
    """Return a line without intervals."""
    return Series(name, style, tuple(Point(x, y, y, y, has_interval=False) for x, y in points), mark, has_band=False)
