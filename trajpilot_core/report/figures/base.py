"""What a figure is: a record with a name, where it is shown, and how it is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.results import Ceiling, CurvePoint, GateRow, Headroom
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Axes, Chart, Series, keys_of_rows, line_chart, measured
from trajpilot_core.report.drawing.picture import Drawn
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.results import Results

ReportSection = Literal["summary", "horizon", "controls", "retrieval", "pool", "training"]
"""Parts of the report that show figures."""


@dataclass(frozen=True)
class Material:
    """The tables that figures of the report are drawn from."""

    results: Results
    ceilings: Sequence[Ceiling]
    gate: Sequence[GateRow]
    headroom: Sequence[Headroom]
    curves: Sequence[tuple[str, Sequence[CurvePoint]]]
    """(stage, its curve rows)."""


@dataclass(frozen=True)
class Figure:
    """One figure: in a section of the report, as a picture of some stages in the Prefect UI, or both."""

    name: str
    title: str
    section: ReportSection | None = None
    charts: Callable[[Material], Sequence[Chart]] | None = None
    """Draws it for the report."""
    stages: tuple[str, ...] = ()
    """Whose committed outputs it shows in the UI."""
    draw: Callable[[Committed], Drawn] | None = None
    """Draws it for the UI."""


def series_of(results: Results, variant: str, reference: str | None, metric: str, *, has_band: bool = True) -> Series:
    """Return one row over the horizons; an infinite interval is not drawn."""
    found = [m for m in results.find({variant}, reference) if m.metric == metric and m.horizon is not None]
    rising = sorted(found, key=lambda m: m.horizon or 0)
    points = tuple(measured(float(m.horizon or 0), m.value, m.low, m.high) for m in rising)
    return Series(row_name(variant), variant, points, mark_of(variant), has_band)


def horizons_of(results: Results) -> tuple[float, ...]:
    """Return all horizons, as ticks."""
    return tuple(sorted({float(m.horizon) for m in results.metrics if m.horizon is not None}))


def rows_chart(results: Results, shown: Sequence[str], title: str, caption: str) -> Chart:
    """Draw M@1 of some rows over the horizon, without bands."""
    series = [s for v in shown if (s := series_of(results, v, None, "M@1", has_band=False)).points]
    axes = Axes(title, "horizon H (steps)", "M@1, %", horizons_of(results))
    return Chart(caption, line_chart(axes, series), keys_of_rows(shown))
