"""Which charts the report shows, drawn from the tables of results."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from schemas.results import Ceiling, CurvePoint, GateRow, Headroom, Metric
from trajpilot_core.report.attribution import ABLATIONS
from trajpilot_core.report.ceilings import INFORMATION
from trajpilot_core.report.charts import Axes, Point, Series, legend_bound, legend_mark, line_chart, whisker_chart
from trajpilot_core.report.names import DESCRIPTIONS, MAIN, OPEN_METRICS, row_name
from trajpilot_core.report.tables import Results

MARKS = {
    "no_traj": "circle",
    "endpoint_traj": "triangle",
    "scorer": "square",
    "scorer_plus": "plus",
    "scorer_permuted": "triangle",
    "scorer_no_labels": "circle",
    "scorer_no_motion": "diamond",
    "oracle": "diamond",
    "pool_mean": "circle",
    "knn_labels": "square",
    "top1": "triangle",
    "shuffled": "diamond",
    "previous": "none",
    "majority": "none",
}
GAIN = ("endpoint_traj", "scorer", "scorer_plus", "pool_mean", "oracle")
"""Rows of the chart of the gains."""
CURVE_STYLES = {"traj": "oracle", "no_traj": "no_traj", "endpoint_traj": "endpoint_traj", "scorer": "scorer"}
DEV_QUANTITIES = ("M@1", "R@5", "selection")
"""What selects the epoch that is kept, first found first."""
POOL_STYLES = ("previous", "no_traj", "endpoint_traj", "scorer", "oracle", "pool_mean")


class LegendItem(NamedTuple):
    """One entry of a legend."""

    name: str
    swatch: Markup


class Figure(NamedTuple):
    """One chart with its caption."""

    caption: str
    chart: Markup
    legend: Sequence[LegendItem] = ()
    """Where the chart has its own."""


def legend(variants: Sequence[str]) -> list[LegendItem]:
    """Return the legend of some rows."""
    return [LegendItem(row_name(v), legend_mark(v, MARKS.get(v, "circle"))) for v in variants]


def bound_legend() -> LegendItem:
    """Return the entry of the ceilings, whose lines have the colours of their rows."""
    return LegendItem("thin, with bars: ceiling of the row of that colour", legend_bound())


def _point(m: Metric) -> Point:
    """Turn a metric into a point over its horizon; an infinite interval is not drawn."""
    wide = m.low == float("-inf")
    return Point(
        float(m.horizon or 0), m.value, m.value if wide else m.low, m.value if wide else m.high, has_interval=not wide
    )


def _series(results: Results, variant: str, reference: str | None, metric: str) -> Series:
    """Return one row over the horizons."""
    found = [m for m in results.find({variant}, reference) if m.metric == metric and m.horizon is not None]
    points = tuple(_point(m) for m in sorted(found, key=lambda m: m.horizon or 0))
    return Series(row_name(variant), variant, points, MARKS.get(variant, "circle"))


def horizon_figures(results: Results, ceilings: Sequence[Ceiling] = ()) -> list[Figure]:
    """Draw every open-vocabulary metric over the horizon for the main rows with bands, and the ceilings where known."""
    ticks = _horizons(results)
    figures = []
    for metric in OPEN_METRICS:
        series = [s for s in (_series(results, v, None, metric) for v in MAIN) if s.points]
        axes = Axes(f"{metric} over the horizon", "horizon H (steps)", f"{metric}, %", ticks)
        bounds = _bounds(ceilings, metric)
        figures.append(Figure(f"{metric}: {DESCRIPTIONS[metric]}", line_chart(axes, series, bounds)))
    return figures


def _bounds(ceilings: Sequence[Ceiling], metric: str) -> list[Series]:
    """Return the ceilings of one metric over the horizon, one line per kind of information."""
    found = sorted((c for c in ceilings if c.metric == metric and c.horizon), key=lambda c: c.horizon or 0)
    lines = {v: [c for c in found if c.variant == v] for v in INFORMATION}
    return [
        Series(f"ceiling of {row_name(v)}", v, tuple(Point(float(c.horizon or 0), *[c.ceiling] * 3) for c in held))
        for v, held in lines.items()
        if held
    ]


def attribution_figure(results: Results) -> Figure:
    """Draw M@1 of the Scorer, of the Scorer without parts and of its fallback over the horizon, without bands."""
    shown = [v for v in results.variants() if v in ("no_traj", *ABLATIONS)]
    lines = [_series(results, v, None, "M@1") for v in shown]
    series = [Series(s.name, s.style, s.points, s.mark, has_band=False) for s in lines if s.points]
    axes = Axes("M@1 of the Scorer without parts", "horizon H (steps)", "M@1, %", _horizons(results))
    return Figure("M@1 of the Scorer, of the Scorer without parts, and of No-Traj", line_chart(axes, series))


def gain_figure(results: Results) -> Figure:
    """Draw the paired differences to No-Traj in M@1 per horizon, with whiskers."""
    shown = [v for v in GAIN if v in results.variants()]
    series = [s for s in (_series(results, v, "no_traj", "M@1") for v in shown) if s.points]
    axes = Axes("Difference to No-Traj in M@1", "horizon H (steps)", "points of M@1", _horizons(results))
    return Figure("M@1 minus No-Traj’s on the same windows, 95 % intervals over takes", whisker_chart(axes, series))


def controls(results: Results) -> list[str]:
    """Return the rows of the chart of the controls."""
    hidden = {"endpoint_traj", "scorer_plus", *ABLATIONS}
    return [variant for variant in results.variants() if variant not in hidden]


def control_figure(results: Results) -> Figure:
    """Draw M@1 of the controls and of No-Traj and Oracle over the horizon, without bands."""
    shown = controls(results)
    lines = [_series(results, v, None, "M@1") for v in shown]
    series = [Series(s.name, s.style, s.points, s.mark, has_band=False) for s in lines if s.points]
    axes = Axes("M@1 of the controls", "horizon H (steps)", "M@1, %", _horizons(results))
    return Figure("M@1 of the controls, No-Traj and Oracle", line_chart(axes, series))


def _horizons(results: Results) -> tuple[float, ...]:
    """All horizons, as ticks."""
    return tuple(sorted({float(m.horizon) for m in results.metrics if m.horizon is not None}))


def gate_figure(rows: Sequence[GateRow]) -> Figure:
    """Draw the share of opened gates over the horizon, one line per seed."""
    seeds = sorted({row.seed for row in rows})
    inside = [row for row in rows if row.horizon is not None]
    series = [
        Series(
            f"seed {seed}",
            "scorer" if i == 0 else "no_traj",
            tuple(
                Point(float(r.horizon or 0), r.open_rate, r.open_rate, r.open_rate) for r in inside if r.seed == seed
            ),
            "square",
        )
        for i, seed in enumerate(seeds)
    ]
    ticks = tuple(sorted({float(row.horizon) for row in inside if row.horizon is not None}))
    return Figure(
        "Windows whose gate trusted a retrieved trajectory",
        line_chart(Axes("Open rate of the gate", "horizon H (steps)", "gate open, %", ticks), series),
    )


def headroom_figure(rows: Sequence[Headroom]) -> Figure:
    """Draw the same-step recall of the retrieved pool over the horizon, one line per pool size, first seed."""
    kept = [row for row in rows if row.seed == min(r.seed for r in rows)]
    series = [
        Series(
            f"top {pool}",
            POOL_STYLES[i % len(POOL_STYLES)],
            tuple(Point(float(r.horizon), *[r.same_step_recall] * 3) for r in kept if r.pool == pool),
            "circle",
        )
        for i, pool in enumerate(sorted({row.pool for row in kept}))
    ]
    ticks = tuple(sorted({float(row.horizon) for row in kept}))
    axes = Axes("Headroom of the retrieved pool", "horizon H (steps)", "truth in pool, %", ticks)
    return Figure("Middle steps whose truth some candidate has at the same place", line_chart(axes, series))


def headroom_legend(rows: Sequence[Headroom]) -> list[LegendItem]:
    """Return the legend of the pool sizes."""
    pools = sorted({row.pool for row in rows})
    return [
        LegendItem(f"top {p}", legend_mark(POOL_STYLES[i % len(POOL_STYLES)], "circle")) for i, p in enumerate(pools)
    ]


def curve_figures(curves: Sequence[tuple[str, Sequence[CurvePoint]]]) -> list[Figure]:
    """Draw, per stage, the training loss and the dev score that selects the epoch, chain `final`, first seed.

    Args:
        curves: (stage, its curve rows).
    """
    figures = []
    for stage, rows in curves:
        kept = [row for row in rows if row.model.startswith("final/") and row.seed == min(r.seed for r in rows)]
        trained = [row for row in kept if row.epoch > 0]
        losses = [row for row in trained if row.quantity == "loss" and row.split == "train"]
        figures.append(_curves(f"{stage}: training loss", "loss", losses, 1.0))
        chosen = next((q for q in DEV_QUANTITIES if any(r.quantity == q and r.split == "dev" for r in trained)), None)
        scores = [row for row in trained if row.quantity == chosen and row.split == "dev"]
        if chosen:
            figures.append(_curves(f"{stage}: dev {chosen}", f"dev {chosen}, %", scores, 100.0))
    return figures


def _curves(title: str, y_label: str, rows: Sequence[CurvePoint], factor: float) -> Figure:
    """Draw one quantity over the epochs, a line per model."""
    series = []
    for model in sorted({row.model for row in rows}):
        name = model.removeprefix("final/")
        points = tuple(
            Point(float(r.epoch), *[factor * r.value] * 3)
            for r in sorted((r for r in rows if r.model == model), key=lambda r: r.epoch)
        )
        series.append(Series(name, CURVE_STYLES.get(name, "scorer"), points, "none"))
    last = max((row.epoch for row in rows), default=1)
    step = max(1, round(last / 5))
    keys = [LegendItem(line.name, legend_mark(line.style, "none")) for line in series]
    axes = Axes(title, "epoch", y_label, tuple(float(e) for e in range(0, last + 1, step)))
    return Figure(title, line_chart(axes, series), keys)
