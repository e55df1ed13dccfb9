"""The record of a figure: its name, where it is shown, and how it is drawn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.results import Ceiling, CurvePoint, GateRow, Headroom
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.drawing.svg_grid import Drawn
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
    """Stages whose committed outputs it shows in the UI."""
    draw: Callable[[Committed], Drawn] | None = None
    """Draws it for the UI."""
