"""Accuracy over the horizon, paired differences, gate and pool: charts of the report, pictures of the UI."""

from collections.abc import Mapping, Sequence
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
    keys_of,
    keys_of_rows,
    line_chart,
    swatch,
    whisker_chart,
)
from trajpilot_core.report.drawing.row_styles import SPARE, style_of
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, sheet
from trajpilot_core.report.figures.base import Figure, Material
from trajpilot_core.report.tables.ceilings import INFORMATION
from trajpilot_core.report.tables.results import Results, ablations, results_of
from trajpilot_core.report.tables.table import row_name
from trajpilot_core.report.verdict import story_of

X_LABEL = "horizon H (steps)"
SEVERAL = 2
"""A row gets a chart of its ablations from this number of them on; the difference to a single one is a table."""
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


def main_legend(material: Material) -> list[Key]:
    """Return the legend of all charts over the horizon; ceilings have the colours of their rows."""
    variants = material.results.variants()
    bar = swatch("bound", element("path", d="M8 6h14"))
    bound = [Key("thin, with bars: ceiling of the row of that colour", bar)]
    return keys_of_rows([v for v in charted() if v in variants]) + (bound if material.ceilings else [])


def rows_chart(results: Results, shown: Sequence[str], title: str, caption: str) -> Chart:
    """Draw M@1 of some rows over the horizon, without bands."""
    series = [s for v in shown if (s := series_of(results, v, None, "M@1", has_band=False)).points]
    return Chart(caption, line_chart(title, X_LABEL, "M@1, %", series), keys_of_rows(shown))


def control_charts(material: Material) -> list[Chart]:
    """Draw the controls between No-Traj and Oracle."""
    ends = {method.id for method in METHODS if method.id == REFERENCE or method.sees == "all_motion"}
    wanted = {*ends, *with_role("control", "floor")}
    shown = [variant for variant in material.results.variants() if variant in wanted]
    return [rows_chart(material.results, shown, "M@1 of the controls", "M@1 of the controls, No-Traj and Oracle")]


def ablation_charts(material: Material) -> list[Chart]:
    """Draw a chart for each row with several ablations."""
    results, charts = material.results, []
    for whole, parts in ablations().items():
        shown = [v for v in results.variants() if v in (REFERENCE, whole, *parts)]
        if len(set(parts) & set(shown)) >= SEVERAL:
            name = row_name(whole)
            caption = f"M@1 of {name}, of {name} without parts, and of {row_name(REFERENCE)}"
            charts.append(rows_chart(results, shown, f"M@1 of {name} without parts", caption))
    return charts


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


def counted_chart(title: str, caption: str, y_label: str, lines: Mapping[str, Sequence[tuple[int, float]]]) -> Chart:
    """Draw lines over the horizon that are no rows: name of a line -> its (horizon, value)."""
    series = [
        Series(name, [*SPARE][at % len(SPARE)], tuple(Point(float(h), value) for h, value in points))
        for at, (name, points) in enumerate(lines.items())
    ]
    return Chart(caption, line_chart(title, X_LABEL, y_label, series), keys_of(series))


def gate_charts(material: Material) -> list[Chart]:
    """Draw the share of opened gates, one line per seed."""
    seeds = sorted({row.seed for row in material.gate})
    lines = {
        f"seed {seed}": [(r.horizon, r.open_rate) for r in material.gate if r.seed == seed and r.horizon is not None]
        for seed in seeds
    }
    caption = "Windows in which the gate opened for a retrieved trajectory"
    return [counted_chart("Open rate of the gate", caption, "gate open, %", lines)]


def headroom_charts(material: Material) -> list[Chart]:
    """Draw the same-step recall of the retrieved pool, one line per pool size, first seed."""
    rows = [row for row in material.headroom if row.seed == min(r.seed for r in material.headroom)]
    lines = {
        f"top {pool}": [(r.horizon, r.same_step_recall) for r in rows if r.pool == pool]
        for pool in sorted({row.pool for row in rows})
    }
    caption = "Middle steps for which a candidate has the true label at the same position"
    return [counted_chart("Headroom of the retrieved pool", caption, "truth in pool, %", lines)]
