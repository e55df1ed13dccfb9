"""Accuracy over the horizon and paired differences: charts of the report, pictures of the UI."""

from collections.abc import Sequence
from math import isfinite

from schemas.arrow import rows_of
from schemas.results import Ceiling, Judgement, Metric
from trajpilot_core.methods import METHODS, charted, with_role
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.metrics import METRICS, of_table
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import (
    Chart,
    Key,
    Point,
    Series,
    element,
    keys_of_rows,
    line_chart,
    swatch,
    whisker_chart,
)
from trajpilot_core.report.drawing.row_styles import style_of
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.tables.ceilings import INFORMATION
from trajpilot_core.report.tables.results import Results, results_of
from trajpilot_core.report.tables.table import row_name
from trajpilot_core.report.verdict import story_of

X_LABEL = "horizon H (steps)"
SHOWN = ("M@1", "MSeq")
"""Metrics of the picture in the UI."""


def series_of(results: Results, variant: str, reference: str | None, metric: str, *, has_band: bool = True) -> Series:
    """Return one row over the horizons; an infinite interval is not drawn."""
    metrics = [m for m in results.find({variant}, reference) if m.metric == metric and m.horizon is not None]
    points = tuple(
        Point(float(m.horizon or 0), m.value, *((m.low, m.high) if isfinite(m.low) and isfinite(m.high) else ()))
        for m in sorted(metrics, key=lambda m: m.horizon or 0)
    )
    return Series(row_name(variant), variant, points, style_of(variant).mark, has_band)


def gain_chart(results: Results) -> Chart:
    """Draw the paired differences to the reference of the story in M@1, with whiskers."""
    variants = results.variants()
    story = story_of(variants)
    shown = [row for row in story.charted if row in variants]
    series = [s for s in (series_of(results, row, story.reference, "M@1") for row in shown) if s.points]
    reference = row_name(story.reference)
    drawing = whisker_chart(f"Difference to {reference} in M@1", X_LABEL, "points of M@1", series)
    caption = f"M@1 minus that of {reference} on the same windows, 95 % intervals over takes"
    return Chart(caption, drawing, keys_of_rows([s.style for s in series]))


def horizon_charts(results: Results, ceilings: Sequence[Ceiling]) -> list[Chart]:
    """Draw a chart per open-vocabulary metric: the main rows with bands, and the ceilings where known."""
    charts = []
    for metric in of_table("open"):
        series = [s for s in (series_of(results, v, None, metric) for v in charted()) if s.points]
        rising = sorted((c for c in ceilings if c.metric == metric and c.horizon), key=lambda c: c.horizon or 0)
        bounds = []
        for kind in INFORMATION:
            points = tuple(Point(float(c.horizon or 0), c.ceiling) for c in rising if c.variant == kind)
            bounds += [Series(f"ceiling of {row_name(kind)}", kind, points)] if points else []
        drawing = line_chart(f"{metric} over the horizon", X_LABEL, f"{metric}, %", series, bounds)
        charts.append(Chart(f"{metric}: {METRICS[metric].description}", drawing))
    return charts


def main_legend(results: Results, *, has_ceilings: bool) -> list[Key]:
    """Return the legend of all charts over the horizon; ceilings have the colours of their rows."""
    variants = results.variants()
    bar = swatch("bound", element("path", d="M8 6h14"))
    bound = [Key("thin, with bars: ceiling of the row of that colour", bar)]
    return keys_of_rows([v for v in charted() if v in variants]) + (bound if has_ceilings else [])


def control_chart(results: Results) -> Chart:
    """Draw M@1 of the controls between No-Traj and Oracle, without bands."""
    ends = {method.id for method in METHODS if method.id == REFERENCE or method.sees == "all_motion"}
    shown = [row for row in results.variants() if row in {*ends, *with_role("control", "floor")}]
    series = [s for row in shown if (s := series_of(results, row, None, "M@1", has_band=False)).points]
    drawing = line_chart("M@1 of the controls", X_LABEL, "M@1, %", series)
    return Chart("M@1 of the controls, No-Traj and Oracle", drawing, keys_of_rows(shown))


def accuracy(committed: Committed) -> Drawn:
    """Draw the metrics of an evaluation; a simulated corpus is named in the picture."""
    metrics = rows_of(Metric, committed.table("evaluation", "metrics"))
    results = results_of(metrics, rows_of(Judgement, committed.table("evaluation", "judgements")))
    rows = [variant for variant in charted() if variant in results.variants()]
    if not rows:
        raise NothingToDraw("no row was scored")
    ceilings = rows_of(Ceiling, committed.table("evaluation", "ceilings"))
    charts = dict(zip(of_table("open"), horizon_charts(results, ceilings), strict=True))
    gains = gain_chart(results)
    panels = [*(charts[name] for name in SHOWN), gains._replace(caption=gains.caption.partition(",")[0])]
    shown = [*rows, *(key.row for key in gains.legend if key.row not in rows)]
    content = sheet(panels, keys_of_rows(shown), committed.warning())
    takes = max(m.n_takes for m in metrics)
    caption = f"Bands and whiskers: 95 % intervals over {takes} test takes (none where there are too few)."
    if ceilings:
        caption += " Thin lines with bars are the ceilings of the rows of that colour."
    weak = [row_name(v) for v in shown if v in results.undertrained]
    return Drawn(content, caption + (f" UNDERTRAINED, do not rely on: {', '.join(weak)}." if weak else ""))


ACCURACY = Figure("accuracy", "Accuracy over the horizon", ("evaluation",), accuracy)
