"""Accuracy over the horizon and paired differences: charts of the report, pictures of the UI."""

from collections.abc import Sequence
from math import isfinite

from schemas.arrow import rows_of
from schemas.results import Ceiling, Judgement, Metric
from trajpilot_core.methods import METHODS, charted, with_role
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.metrics import METRICS, of_table
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Chart, Kind, Point, Series
from trajpilot_core.report.drawing.sheets import svg
from trajpilot_core.report.figures.base import Drawn, Figure, NothingToDraw
from trajpilot_core.report.tables.ceilings import INFORMATION
from trajpilot_core.report.tables.results import Results, results_of
from trajpilot_core.report.tables.table import row_name
from trajpilot_core.report.verdict import story_of

X_LABEL = "horizon H (steps)"
SHOWN = ("M@1", "MSeq")
"""Metrics of the picture in the UI."""
BOUNDS = "Thin lines with bars are the ceilings of the rows of that colour."


def series_of(results: Results, variant: str, reference: str | None, metric: str, kind: Kind = "band") -> list[Series]:
    """Return one row over the horizons, if it was scored; an infinite interval is not drawn."""
    metrics = [m for m in results.find({variant}, reference) if m.metric == metric and m.horizon is not None]
    points = tuple(
        Point(float(m.horizon or 0), m.value, *((m.low, m.high) if isfinite(m.low) and isfinite(m.high) else ()))
        for m in sorted(metrics, key=lambda m: m.horizon or 0)
    )
    return [Series(row_name(variant), variant, points, kind)] if points else []


def gain_chart(results: Results) -> Chart:
    """Return the paired differences to the reference of the story in M@1, with whiskers."""
    variants = results.variants()
    story = story_of(variants)
    shown = [row for row in story.charted if row in variants]
    series = [s for row in shown for s in series_of(results, row, story.reference, "M@1", "whisker")]
    title = f"M@1 minus that of {row_name(story.reference)} on the same windows, 95 % intervals over takes"
    return Chart(title, X_LABEL, "points of M@1", series)


def horizon_charts(results: Results, ceilings: Sequence[Ceiling]) -> list[Chart]:
    """Return a chart per open-vocabulary metric: the main rows with bands, and the ceilings where known."""
    charts = []
    for metric in of_table("open"):
        series = [s for variant in charted() for s in series_of(results, variant, None, metric)]
        rising = sorted((c for c in ceilings if c.metric == metric and c.horizon), key=lambda c: c.horizon or 0)
        for kind in INFORMATION:
            points = tuple(Point(float(c.horizon or 0), c.ceiling) for c in rising if c.variant == kind)
            series += [Series(f"ceiling of {row_name(kind)}", kind, points, "bound")] if points else []
        charts.append(Chart(f"{metric}: {METRICS[metric].description}", X_LABEL, f"{metric}, %", series))
    return charts


def control_chart(results: Results) -> Chart:
    """Return M@1 of the controls between No-Traj and Oracle, without bands."""
    ends = {method.id for method in METHODS if method.id == REFERENCE or method.sees == "all_motion"}
    shown = [row for row in results.variants() if row in {*ends, *with_role("control", "floor")}]
    series = [s for row in shown for s in series_of(results, row, None, "M@1", "line")]
    return Chart("M@1 of the controls, No-Traj and Oracle", X_LABEL, "M@1, %", series)


def accuracy(committed: Committed) -> Drawn:
    """Draw the metrics of an evaluation; a simulated corpus is named in the picture."""
    metrics = rows_of(Metric, committed.table("evaluation", "metrics"))
    results = results_of(metrics, rows_of(Judgement, committed.table("evaluation", "judgements")))
    if not any(variant in results.variants() for variant in charted()):
        raise NothingToDraw("no row was scored")
    ceilings = rows_of(Ceiling, committed.table("evaluation", "ceilings"))
    charts = dict(zip(of_table("open"), horizon_charts(results, ceilings), strict=True))
    panels = [*(charts[name] for name in SHOWN), gain_chart(results)]
    content = svg(panels, committed.warning(), columns=2, is_themed=False).encode()
    takes = max(m.n_takes for m in metrics)
    caption = f"Bands and whiskers: 95 % intervals over {takes} test takes (none where there are too few)."
    if ceilings:
        caption += f" {BOUNDS}"
    shown = dict.fromkeys(line.style for panel in panels for line in panel.series if line.kind != "bound")
    weak = [row_name(v) for v in shown if v in results.undertrained]
    return Drawn(content, caption + (f" UNDERTRAINED, do not rely on: {', '.join(weak)}." if weak else ""))


ACCURACY = Figure("accuracy", "Accuracy over the horizon", ("evaluation",), accuracy)
