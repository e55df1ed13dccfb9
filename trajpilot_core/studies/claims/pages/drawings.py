"""Charts of the claims: lines with their intervals, grouped by the section that shows them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from schemas.claims import BASE, SWEEP_ROWS, ClaimsConfig, sweep_worlds
from trajpilot_core.evaluation.paper_claims import model_of
from trajpilot_core.methods import METHODS
from trajpilot_core.report.drawing.charts import Axes, Point, Series, line_chart, whisker_chart
from trajpilot_core.report.drawing.legend import DEV_QUANTITIES, Chart, keys_of
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.report.drawing.style import style
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.studies.claims.aims import PLUS, Aims
from trajpilot_core.studies.claims.pages.scorer import MAIN_QUANTITY, of_base, pool_means, shares_of, values_of
from trajpilot_core.studies.claims.pages.worlds import CURVE_BOUNDS, curve_rows, sizes_of
from trajpilot_core.studies.claims.readings import METRIC_NAMES, SHOWN_METRICS, horizons, name, per_horizon, reading
from trajpilot_core.studies.claims.statistics import Estimate
from trajpilot_core.studies.claims.tables import CEILING, Evidence
from trajpilot_core.studies.claims.verdicts import Judged

SEED_STYLES = ("scorer", "endpoint_traj", "oracle")
"""Line styles of the seeds."""
POOL_LINES = (
    ("same_step_recall", "same step", "no_traj"),
    ("any_step_recall", "any step", "endpoint_traj"),
    ("oracle_m1", "best candidate, M@1", "oracle"),
    ("oracle_mseq", "best candidate, MSeq", "scorer"),
)
STEPS = "horizon H (steps)"


class Drawing(NamedTuple):
    """One chart: what its axes show, and its lines."""

    section: str
    axes: Axes
    series: tuple[Series, ...]
    has_whiskers: bool = False

    def chart(self) -> Chart:
        """Return the chart for the HTML page."""
        return Chart(f"{self.axes.title} (simulated world)", self.svg(), keys_of(self.series))

    def svg(self) -> Markup:
        """Return the drawing alone."""
        return (whisker_chart if self.has_whiskers else line_chart)(self.axes, self.series)


def picture(drawings: Sequence[Drawing]) -> bytes:
    """Lay charts out in one SVG file that carries its own colours."""
    panels = [Panel(f"{drawing.axes.title} (simulated world)", drawing.svg()) for drawing in drawings]
    return sheet(panels, keys_of(drawings[0].series), style(), 2)


def all_drawings(evidence: Evidence, judged: tuple[Judged, ...], aims: Aims, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw everything, section by section."""
    return [
        differences(judged, cfg),
        *plus_leads(aims, cfg),
        *rows_over_horizons(evidence, cfg),
        *sweep(evidence, cfg),
        *training_takes(evidence, cfg),
        *gate(evidence, cfg),
        *pool_and_queries(evidence, cfg),
        *curves(evidence),
    ]


def differences(judged: tuple[Judged, ...], cfg: ClaimsConfig) -> Drawing:
    """Draw the differences to No-Traj of the claims in the world `base`, per horizon."""
    series = tuple(
        _over_horizons(finding.statement.row, {part.name: part.figure for part in finding.parts}, cfg)
        for row in judged
        for finding in row.findings
        if finding.statement.role == "claim" and finding.statement.reference == "no_traj"
        if finding.parts and finding.statement.kind != "slope"
    )
    return Drawing("claims", Axes("M@1 minus No-Traj", STEPS, "points of M@1", _ticks(cfg)), series, True)


def plus_leads(aims: Aims, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw Scorer+ minus each of the five rows, per horizon, in both metrics."""
    return [
        Drawing(
            "aims",
            Axes(f"{METRIC_NAMES[metric]}: {name(PLUS)} minus each row", STEPS, "points", _ticks(cfg)),
            tuple(
                _over_horizons(c.rival, dict(zip(horizons(cfg), c.per_horizon, strict=True)), cfg)
                for c in aims.comparisons
                if c.metric == metric and c.per_horizon
            ),
            True,
        )
        for metric in SHOWN_METRICS
    ]


def shown_rows() -> list[str]:
    """Return the rows of the picture of the rendered world: the main ones, and the controls that are led by motion."""
    return [one.id for one in METHODS if one.role == "main" or (one.role == "control" and "traj" in one.models)]


def rows_over_horizons(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw the rows of the rendered world over H with their ceilings, in both metrics."""
    found = []
    for metric in SHOWN_METRICS:
        read = {
            row: zip(cfg.horizons, per_horizon(evidence, BASE, row, None, metric, cfg), strict=False)
            for row in (*shown_rows(), *(CEILING + row for row in SWEEP_ROWS))
        }
        axes = Axes(f"{METRIC_NAMES[metric]} over the horizon", STEPS, f"{METRIC_NAMES[metric]}, %", _ticks(cfg))
        found.append(Drawing("rows", axes, _lines(read)))
    return found


def sweep(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw M@1 over kappa, a chart per style."""
    found = []
    for wanted in cfg.sweep_style:
        worlds = [(kappa, world) for world, (kappa, style_) in sweep_worlds(cfg).items() if style_ == wanted]
        read = {
            row: [(kappa, reading(evidence, world, row, None, "m1", cfg)) for kappa, world in worlds]
            for row in (*SWEEP_ROWS, *(CEILING + row for row in SWEEP_ROWS))
        }
        axes = Axes(f"M@1 over kappa, style {wanted:g}, one seed", "kappa", "M@1, %", tuple(cfg.sweep_kappa))
        found.append(Drawing("worlds", axes, _lines(read)))
    return found


def training_takes(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw the rows over the number of training takes."""
    sizes, one = sizes_of(cfg), cfg.replace(seeds=(cfg.sweep_seed,))
    found = []
    for metric in SHOWN_METRICS:
        read = {
            row: [(size, reading(evidence, world, row, None, metric, one)) for world, size in sizes.items()]
            for row in (*curve_rows(), *CURVE_BOUNDS)
        }
        label = f"{METRIC_NAMES[metric]}, %"
        axes = Axes(f"{label} by training takes, one seed", "training takes", label, tuple(map(float, sizes.values())))
        found.append(Drawing("worlds", axes, _lines(read)))
    return found


def gate(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw the open rate and the gain on opened windows over H, a line per seed."""
    rows = [(place.seed, row) for place, row in evidence.gate if place.world == BASE and row.horizon is not None]
    return [
        Drawing(
            "scorer",
            Axes(title, STEPS, label, _ticks(cfg)),
            tuple(
                _bare(f"seed {seed}", SEED_STYLES[seed % 3], ((r.horizon or 0, getattr(r, column)) for r in held))
                for seed in sorted({seed for seed, _ in rows})
                if (held := [row for s, row in rows if s == seed])
            ),
        )
        for column, title, label in (
            ("open_rate", "Open rate of the gate", "open, %"),
            ("gain_opened", "Gain on opened windows", "points of M@1"),
        )
    ]


def pool_and_queries(evidence: Evidence, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw what the pool could give over its size, and M@1 over the share of queries; means over seeds."""
    pools = sorted({row.pool for place, row in evidence.headroom if place.world == BASE})
    recalls = tuple(
        _bare(title, line, ((pool, _mean(pool_means(evidence, pool, column, cfg))) for pool in pools))
        for column, title, line in POOL_LINES
        if pools
    )
    rows = [(seed, row) for seed, row in of_base(evidence) if row.quantity == MAIN_QUANTITY]
    shares = shares_of(rows)
    by_query = tuple(
        _bare(name(m), m, ((share, _mean(values_of(rows, m, MAIN_QUANTITY, share).values())) for share in shares))
        for m in sorted({row.model for _, row in rows})
    )
    pool_axes = Axes("What the pool could give", "candidates K", "%", tuple(map(float, pools)))
    query_axes = Axes("M@1 by training queries", "share of the training queries, %", "M@1, %", tuple(shares))
    return [Drawing("scorer", pool_axes, recalls), Drawing("scorer", query_axes, by_query)]


def curves(evidence: Evidence) -> list[Drawing]:
    """Draw the dev score that selects the epoch, for chain `final` in the rendered world, a line per seed."""
    rows = [
        (place.seed, point)
        for place, point in evidence.curves
        if place.world == BASE and point.model.startswith("final/") and point.split == "dev" and point.epoch > 0
    ]
    found = []
    for model in sorted({point.model for _, point in rows}):
        own = [(seed, point) for seed, point in rows if point.model == model]
        chosen = next((q for q in DEV_QUANTITIES if any(point.quantity == q for _, point in own)), "")
        series = tuple(
            _bare(
                f"seed {seed}",
                SEED_STYLES[seed % 3],
                ((p.epoch, 100 * p.value) for s, p in own if (s, p.quantity) == (seed, chosen)),
                "none",
            )
            for seed in sorted({seed for seed, _ in own})
        )
        last = max(point.epoch for _, point in own)
        ticks = tuple(map(float, range(max(1, round(last / 5)), last + 1, max(1, round(last / 5)))))
        axes = Axes(f"{name(model_of(model))}: dev {chosen}", "epoch", f"dev {chosen}, %", ticks)
        found.append(Drawing("trainings", axes, series))
    return found


def _over_horizons(row: str, figures: Mapping[str, Estimate], cfg: ClaimsConfig) -> Series:
    """Return one row's differences as points with whiskers."""
    pairs = zip(cfg.horizons, horizons(cfg), strict=True)
    points = tuple(_point(h, figures[heading]) for h, heading in pairs if heading in figures)
    return Series(name(row), row, points, mark_of(row))


def _lines(read: Mapping[str, Iterable[tuple[float, Estimate | None]]]) -> tuple[Series, ...]:
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


def _bare(title: str, line: str, points: Iterable[tuple[float, float]], mark: str = "circle") -> Series:
    """Return a line without intervals, from left to right."""
    held = sorted((float(x), y) for x, y in points if math.isfinite(y))
    return Series(title, line, tuple(Point(x, y, y, y, has_interval=False) for x, y in held), mark, has_band=False)


def _mean(values: Iterable[float]) -> float:
    held = list(values)
    return sum(held) / len(held) if held else math.nan


def _ticks(cfg: ClaimsConfig) -> tuple[float, ...]:
    return tuple(float(h) for h in cfg.horizons)
