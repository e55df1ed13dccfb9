"""The same-step recall of the retrieved pool over the horizon, one line per pool size, first seed."""

from trajpilot_core.report.drawing.charts import Axes, Chart, Point, Series, keys_of, line_chart
from trajpilot_core.report.drawing.row_styles import told_apart
from trajpilot_core.report.figures.base import Figure, Material


def charts(material: Material) -> list[Chart]:
    """Draw the same-step recall of the retrieved pool over the horizon, one line per pool size, first seed."""
    rows = material.headroom
    kept = [row for row in rows if row.seed == min(r.seed for r in rows)]
    pools = sorted({row.pool for row in kept})
    series = [
        Series(
            f"top {pool}",
            style,
            tuple(Point(float(r.horizon), *[r.same_step_recall] * 3) for r in kept if r.pool == pool),
            "circle",
        )
        for pool, style in zip(pools, told_apart("" for _ in pools), strict=True)
    ]
    ticks = tuple(sorted({float(row.horizon) for row in kept}))
    axes = Axes("Headroom of the retrieved pool", "horizon H (steps)", "truth in pool, %", ticks)
    caption = "Middle steps whose truth some candidate has at the same place"
    return [Chart(caption, line_chart(axes, series), keys_of(series))]


FIGURE = Figure("headroom", "Headroom of the retrieved pool", "pool", charts)
