"""Accuracy over the horizon: M@1 and MSeq of every main row with bands, and the paired difference to No-Traj."""

from collections.abc import Sequence

from schemas.arrow import rows_of
from schemas.results import Ceiling, Judgement, Metric
from trajpilot_core.methods import charted
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import keys_of_rows
from trajpilot_core.report.drawing.picture import Drawn, NothingToDraw
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.figures.gains import gain_chart
from trajpilot_core.report.figures.horizons import horizon_charts
from trajpilot_core.report.tables.names import descriptions, open_metrics, row_name
from trajpilot_core.report.tables.results import results_of

SHOWN = ("M@1", "MSeq")


def accuracy(committed: Committed) -> Drawn:
    """Draw the metrics of an evaluation; a simulated corpus is named in the picture itself."""
    metrics = rows_of(Metric, committed.table("evaluation", "metrics"))
    results = results_of(metrics, rows_of(Judgement, committed.table("evaluation", "judgements")))
    rows = [variant for variant in charted() if variant in results.variants()]
    if not rows:
        raise NothingToDraw("no row was scored")
    ceilings = rows_of(Ceiling, committed.table("evaluation", "ceilings"))
    charts = dict(zip(open_metrics(), horizon_charts(results, ceilings), strict=True))
    panels = [Panel(f"{name}: {descriptions()[name]}", charts[name].chart) for name in SHOWN]
    gains = gain_chart(results)
    panels.append(Panel(gains.caption.partition(",")[0], gains.chart))
    drawn = [*rows, *(key.row for key in gains.legend if key.row not in rows)]
    content = sheet(panels, keys_of_rows(drawn), committed.warning())
    return Drawn(content, _caption(metrics, [v for v in drawn if v in results.undertrained], bool(ceilings)))


def _caption(metrics: Sequence[Metric], weak: Sequence[str], has_ceilings: bool) -> str:
    """State how to read the picture, and which rows not to trust."""
    takes = max(m.n_takes for m in metrics)
    said = f"Bands and whiskers: 95 % intervals over {takes} test takes (none where there are too few)."
    if has_ceilings:
        said += " Thin lines with bars are the ceilings of the rows of that colour."
    return said + (f" UNDERTRAINED, not to be relied on: {', '.join(map(row_name, weak))}." if weak else "")


FIGURE = Figure("accuracy", "Accuracy over the horizon", stages=("evaluation",), draw=accuracy)
