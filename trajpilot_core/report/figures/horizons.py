"""Every open-vocabulary metric over the horizon for the main rows with bands, and the ceilings where known."""

from collections.abc import Sequence

from schemas.results import Ceiling
from trajpilot_core.methods import charted
from trajpilot_core.report.drawing.charts import (
    Axes,
    Chart,
    Key,
    Point,
    Series,
    element,
    keys_of_rows,
    line_chart,
    swatch,
)
from trajpilot_core.report.figures.base import Figure, Material, horizons_of, series_of
from trajpilot_core.report.tables.ceilings import INFORMATION
from trajpilot_core.report.tables.names import descriptions, open_metrics, row_name
from trajpilot_core.report.tables.results import Results


def horizon_charts(results: Results, ceilings: Sequence[Ceiling]) -> list[Chart]:
    """Draw a chart per metric."""
    ticks = horizons_of(results)
    drawn = []
    for metric in open_metrics():
        series = [s for s in (series_of(results, v, None, metric) for v in charted()) if s.points]
        axes = Axes(f"{metric} over the horizon", "horizon H (steps)", f"{metric}, %", ticks)
        drawn.append(Chart(f"{metric}: {descriptions()[metric]}", line_chart(axes, series, _bounds(ceilings, metric))))
    return drawn


def main_legend(material: Material) -> list[Key]:
    """Return the legend of all charts of this figure; ceilings have the colours of their rows."""
    held = material.results.variants()
    bar = swatch("bound", element("path", d="M8 6h14"))
    bound = [Key("thin, with bars: ceiling of the row of that colour", bar)]
    return keys_of_rows([v for v in charted() if v in held]) + (bound if material.ceilings else [])


def _bounds(ceilings: Sequence[Ceiling], metric: str) -> list[Series]:
    """Return the ceilings of one metric over the horizon, one line per kind of information."""
    found = sorted((c for c in ceilings if c.metric == metric and c.horizon), key=lambda c: c.horizon or 0)
    lines = {v: [c for c in found if c.variant == v] for v in INFORMATION}
    return [
        Series(f"ceiling of {row_name(v)}", v, tuple(Point(float(c.horizon or 0), *[c.ceiling] * 3) for c in held))
        for v, held in lines.items()
        if held
    ]


FIGURE = Figure(
    "horizons",
    "Accuracy over the horizon",
    "horizon",
    lambda material: horizon_charts(material.results, material.ceilings),
)
