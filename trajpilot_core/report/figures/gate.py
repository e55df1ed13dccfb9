"""The share of opened gates over the horizon."""

from trajpilot_core.methods import examined
from trajpilot_core.report.drawing.charts import Axes, Chart, Point, Series, keys_of, line_chart
from trajpilot_core.report.drawing.row_styles import told_apart
from trajpilot_core.report.figures.base import Figure, Material


def charts(material: Material) -> list[Chart]:
    """Draw the share of opened gates over the horizon, one line per seed."""
    rows = material.gate
    seeds = sorted({row.seed for row in rows})
    inside = [row for row in rows if row.horizon is not None]
    series = [
        Series(
            f"seed {seed}",
            style,
            tuple(
                Point(float(r.horizon or 0), r.open_rate, r.open_rate, r.open_rate) for r in inside if r.seed == seed
            ),
            "square",
        )
        for seed, style in zip(
            seeds, told_apart(examined().id if seed == seeds[0] else "" for seed in seeds), strict=True
        )
    ]
    ticks = tuple(sorted({float(row.horizon) for row in inside if row.horizon is not None}))
    return [
        Chart(
            "Windows whose gate trusted a retrieved trajectory",
            line_chart(Axes("Open rate of the gate", "horizon H (steps)", "gate open, %", ticks), series),
            keys_of(series),
        )
    ]


FIGURE = Figure("gate", "Open rate of the gate", "retrieval", charts)
