"""M@1 of the controls, of No-Traj and Oracle over the horizon, without bands."""

from trajpilot_core.methods import METHODS, with_role
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.figures.base import Figure, Material, rows_chart


def charts(material: Material) -> list[Chart]:
    """Draw the rows."""
    results = material.results
    between = {one.id for one in METHODS if one.id == REFERENCE or one.sees == "all_motion"}
    wanted = {*between, *with_role("control", "floor")}
    shown = [variant for variant in results.variants() if variant in wanted]
    return [rows_chart(results, shown, "M@1 of the controls", "M@1 of the controls, No-Traj and Oracle")]


FIGURE = Figure("controls", "Controls", "controls", charts)
