"""The record of a figure: its name, where it is shown, and how it is drawn."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.results import Ceiling, CurvePoint, GateRow, Headroom
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.methods.plugged import listed
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.drawing.svg_grid import Drawn, NotDrawn, NothingAsked, NothingToDraw, Picture, fitted
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


LOG = logging.getLogger("trajpilot")


def draw(stage: str, figure: Figure, committed: Committed) -> Picture | NotDrawn:
    """Draw a picture of a committed stage; one that cannot be drawn is returned and logged with its reason.

    A stage that had nothing to do is not logged.
    """
    picture: Picture | NotDrawn
    try:
        if figure.draw is None:
            raise NothingToDraw("it is a figure of the report alone")
        with listed(committed.config.evaluation):
            picture = fitted(figure.name, figure.title, figure.draw(committed))
    except NothingAsked as empty:
        return NotDrawn(figure.name, figure.title, str(empty))
    except (TrajPilotError, OSError, ValueError) as error:  # nothing to show, damage, a disk, numbers without a scale
        picture = NotDrawn(figure.name, figure.title, str(error) or type(error).__name__)
    if isinstance(picture, NotDrawn):
        LOG.info("%-13s no picture %r: %s", stage, picture.title, picture.reason)
    return picture
