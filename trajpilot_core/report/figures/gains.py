"""The paired differences to No-Traj in M@1 per horizon, with whiskers."""

from trajpilot_core.methods import charted, in_order
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.charts import Axes, Chart, keys_of_rows, whisker_chart
from trajpilot_core.report.figures.base import Figure, horizons_of, series_of
from trajpilot_core.report.tables.results import Results

AVERAGE = "pool_mean"
"""The control beside the main rows: what their gain is without choosing. Named by hand: the figure asks this one
question, and another control answers another."""


def gaining() -> list[str]:
    """Return the rows whose gain is shown."""
    return in_order({*charted(), AVERAGE} - {REFERENCE})


def gain_chart(results: Results) -> Chart:
    """Draw the differences."""
    shown = [v for v in gaining() if v in results.variants()]
    series = [s for s in (series_of(results, v, REFERENCE, "M@1") for v in shown) if s.points]
    axes = Axes("Difference to No-Traj in M@1", "horizon H (steps)", "points of M@1", horizons_of(results))
    caption = "M@1 minus No-Traj’s on the same windows, 95 % intervals over takes"
    return Chart(caption, whisker_chart(axes, series), keys_of_rows(shown))


FIGURE = Figure("gains", "Gain over No-Traj", "summary", lambda material: [gain_chart(material.results)])
