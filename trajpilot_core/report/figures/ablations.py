"""M@1 of the Scorer, of the Scorer without parts and of its fallback over the horizon, without bands."""

from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.charts import Axes, line_chart
from trajpilot_core.report.drawing.legend import Chart, keys_of_rows
from trajpilot_core.report.figures.base import Figure, Material, horizons_of, series_of
from trajpilot_core.report.tables.attribution import ablations


def charts(material: Material) -> list[Chart]:
    """Draw the rows."""
    results = material.results
    shown = [v for v in results.variants() if v in (REFERENCE, *ablations())]
    series = [s for v in shown if (s := series_of(results, v, None, "M@1", has_band=False)).points]
    axes = Axes("M@1 of the Scorer without parts", "horizon H (steps)", "M@1, %", horizons_of(results))
    caption = "M@1 of the Scorer, of the Scorer without parts, and of No-Traj"
    return [Chart(caption, line_chart(axes, series), keys_of_rows(shown))]


FIGURE = Figure("ablations", "The Scorer without parts", "retrieval", charts)
