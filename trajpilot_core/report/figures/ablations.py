"""M@1 of the Scorer, of the Scorer without parts and of its fallback over the horizon, without bands."""

from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.legend import Chart
from trajpilot_core.report.figures.base import Figure, Material, rows_chart
from trajpilot_core.report.tables.attribution import ablations


def charts(material: Material) -> list[Chart]:
    """Draw the rows."""
    results = material.results
    shown = [v for v in results.variants() if v in (REFERENCE, *ablations())]
    caption = "M@1 of the Scorer, of the Scorer without parts, and of No-Traj"
    return [rows_chart(results, shown, "M@1 of the Scorer without parts", caption)]


FIGURE = Figure("ablations", "The Scorer without parts", "retrieval", charts)
