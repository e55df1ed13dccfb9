"""M@1 of the controls, of No-Traj and Oracle over the horizon, without bands."""

from trajpilot_core.methods import METHODS, with_role
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.charts import Axes, line_chart
from trajpilot_core.report.drawing.legend import Chart, keys_of_rows
from trajpilot_core.report.figures.base import Figure, Material, horizons_of, series_of


def charts(material: Material) -> list[Chart]:
    """Draw the rows."""
    results = material.results
    between = {one.id for one in METHODS if one.id == REFERENCE or one.sees == "all_motion"}
    wanted = {*between, *with_role("control", "floor")}
    shown = [variant for variant in results.variants() if variant in wanted]
    series = [s for v in shown if (s := series_of(results, v, None, "M@1", has_band=False)).points]
    axes = Axes("M@1 of the controls", "horizon H (steps)", "M@1, %", horizons_of(results))
    return [Chart("M@1 of the controls, No-Traj and Oracle", line_chart(axes, series), keys_of_rows(shown))]


FIGURE = Figure("controls", "Controls", "controls", charts)
