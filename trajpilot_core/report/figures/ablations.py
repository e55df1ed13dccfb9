"""M@1 of a row, of the same without parts and of the fallback over the horizon, without bands; a chart per row."""

from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.figures.base import Figure, Material, rows_chart
from trajpilot_core.report.tables.attribution import ablations
from trajpilot_core.report.tables.names import row_name

SEVERAL = 2
"""Parts in this run from which on a row gets a chart; differences to a single one are a table."""


def charts(material: Material) -> list[Chart]:
    """Draw the rows, a chart for each that has several parts taken away."""
    results = material.results
    charts = []
    for whole, parts in ablations().items():
        shown = [v for v in results.variants() if v in (REFERENCE, whole, *parts)]
        if len(set(parts) & set(shown)) >= SEVERAL:
            name = row_name(whole)
            caption = f"M@1 of {name}, of {name} without parts, and of {row_name(REFERENCE)}"
            charts.append(rows_chart(results, shown, f"M@1 of {name} without parts", caption))
    return charts


FIGURE = Figure("ablations", "Rows without parts", "retrieval", charts)
