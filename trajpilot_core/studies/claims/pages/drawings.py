"""Charts of the claims: lines with their intervals, grouped by the section that shows them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from schemas.claims import BASE, CURVE_ROWS, ClaimsConfig, sweep_worlds
from trajpilot_core.evaluation.trained_rows import model_of
from trajpilot_core.methods import with_role
from trajpilot_core.report.drawing.charts import Axes, Point, Series, line_chart
from trajpilot_core.report.drawing.legend import DEV_QUANTITIES, Chart, keys_of
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.report.drawing.style import style
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.studies.claims.evidence.readings import (
    METRIC_NAMES,
    SHOWN_METRICS,
    name,
    per_horizon,
    reading,
)
from trajpilot_core.studies.claims.evidence.statistics import Estimate
from trajpilot_core.studies.claims.evidence.tables import CEILING, Evidence
from trajpilot_core.studies.claims.pages.worlds import BOUNDS, of_curve, sizes_of

SEED_STYLES = ("scorer", "endpoint_traj", "oracle")
"""Line styles of the seeds."""
STEPS = "horizon H (steps)"


class Drawing(NamedTuple):
    """One chart: what its axes show, and its lines."""

    section: str
    axes: Axes
    series: tuple[Series, ...]

    def chart(self) -> Chart:
        """Return the chart for the HTML page."""
        return Chart(f"{self.axes.title} (simulated world)", self.svg(), keys_of(self.series))

    def svg(self) -> Markup:
        """Return the drawing alone."""
        return line_chart(self.axes, self.series)


def picture(drawings: Sequence[Drawing]) -> bytes:
    """Lay charts out in one SVG file that carries its own colours."""
    panels = [Panel(drawing.axes.title, drawing.svg()) for drawing in drawings]
    return sheet(panels, keys_of(drawings[0].series), style(), 2, "Simulated world")


def all_drawings(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw everything, section by section."""
    return [
        *rows_over_horizons(evidence, cfg),
        *sweep(evidence, cfg),
        *training_takes(evidence, cfg),
        *curves(evidence),
    ]


def rows_over_horizons(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw the main rows of `base` over H with the exact ceilings, in both metrics."""
    found = []
    for metric in SHOWN_METRICS:
        read = {
            row: zip(cfg.horizons, per_horizon(evidence, BASE, row, None, metric, cfg), strict=False)
            for row in (*with_role("main"), *BOUNDS)
        }
        axes = Axes(f"{METRIC_NAMES[metric]} over the horizon", STEPS, f"{METRIC_NAMES[metric]}, %", _ticks(cfg))
        found.append(Drawing("rows", axes, lines(read)))
    return found


def sweep(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw the exact ceilings over kappa, a chart per style."""
    found = []
    for wanted in cfg.sweep_style:
        worlds = {world: kappa for world, (kappa, style_) in sweep_worlds(cfg).items() if style_ == wanted}
        axes = Axes(f"Exact ceilings over kappa, style {wanted:g}", "kappa", "M@1, %", tuple(cfg.sweep_kappa))
        found.append(Drawing("worlds", axes, _over_worlds(evidence, worlds, BOUNDS, "m1", cfg)))
    return found


def training_takes(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw the rows of the learning curve over the number of training takes."""
    sizes, rows = sizes_of(cfg), (*CURVE_ROWS, *(CEILING + row for row in CURVE_ROWS))
    found = []
    for metric in SHOWN_METRICS:
        label, ticks = f"{METRIC_NAMES[metric]}, %", tuple(map(float, sizes.values()))
        axes = Axes(f"{label} by training takes, one seed", "training takes", label, ticks)
        found.append(Drawing("curve", axes, _over_worlds(evidence, sizes, rows, metric, of_curve(cfg))))
    return found


def _over_worlds(
    evidence: Evidence, worlds: Mapping[str, float], rows: Sequence[str], metric: str, cfg: ClaimsConfig
) -> tuple[Series, ...]:
    """Return a line per row over worlds, each at its place on the axis."""
    return lines(
        {row: [(x, reading(evidence, world, row, None, metric, cfg)) for world, x in worlds.items()] for row in rows}
    )


def _line_per_seed(points: Sequence[tuple[int, float, float]], mark: str = "circle") -> tuple[Series, ...]:
    """Return a line for every seed of (seed, x, y)."""
    return tuple(
        bare(f"seed {seed}", SEED_STYLES[seed % len(SEED_STYLES)], ((x, y) for s, x, y in points if s == seed), mark)
        for seed in sorted({seed for seed, _, _ in points})
    )


def curves(evidence: Evidence) -> list[Drawing]:
    """Draw the dev score that selects the epoch, for chain `final` in `base`, a line per seed."""
    rows = [
        (origin.seed, point)
        for origin, point in evidence.curves
        if origin.world == BASE and point.model.startswith("final/") and point.split == "dev" and point.epoch > 0
    ]
    found = []
    for model in sorted({point.model for _, point in rows}):
        own = [(seed, point) for seed, point in rows if point.model == model]
        chosen = next((q for q in DEV_QUANTITIES if any(point.quantity == q for _, point in own)), "")
        series = _line_per_seed([(s, p.epoch, 100 * p.value) for s, p in own if p.quantity == chosen], "none")
        last = max(point.epoch for _, point in own)
        ticks = tuple(map(float, range(max(1, round(last / 5)), last + 1, max(1, round(last / 5)))))
        axes = Axes(f"{name(model_of(model))}: dev {chosen}", "epoch", f"dev {chosen}, %", ticks)
        found.append(Drawing("trainings", axes, series))
    return found


def lines(read: Mapping[str, Iterable[tuple[float, Estimate | None]]]) -> tuple[Series, ...]:
    """Return a line per row that has points; ceilings are dashed, without marks and bands."""
    found = []
    for row, figures in read.items():
        points = tuple(_point(x, figure) for x, figure in figures if figure is not None)
        bounds = row.removeprefix(CEILING)
        line = Series(name(row), row, points, mark_of(row))
        if row.startswith(CEILING):
            line = Series(name(row), f"{bounds} ceiling", points, "none", has_band=False)
        found += [line] if points else []
    return tuple(found)


def _point(x: float, figure: Estimate) -> Point:
    """Return a point with its interval; where there is none only the point is drawn."""
    is_known = math.isfinite(figure.low) and math.isfinite(figure.high)
    low, high = (figure.low, figure.high) if is_known else (figure.value, figure.value)
    return Point(float(x), figure.value, low, high, has_interval=is_known)


def bare(title: str, line: str, points: Iterable[tuple[float, float]], mark: str = "circle") -> Series:
    """Return a line without intervals, from left to right."""
    held = sorted((float(x), y) for x, y in points if math.isfinite(y))
    return Series(title, line, tuple(Point(x, y, y, y, has_interval=False) for x, y in held), mark, has_band=False)


def _ticks(cfg: ClaimsConfig) -> tuple[float, ...]:
    return tuple(float(h) for h in cfg.horizons)
