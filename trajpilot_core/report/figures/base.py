"""The record of a picture, and what the charts of the report are drawn from."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.results import Ceiling, CurvePoint, GateRow, Headroom
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.methods.plugged import listed
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.svg_grid import Drawn, NotDrawn, NothingAsked, Picture, fitted
from trajpilot_core.report.tables.results import Results


@dataclass(frozen=True)
class Material:
    """The tables that figures of the report are drawn from."""

    results: Results
    ceilings: Sequence[Ceiling]
    gate: Sequence[GateRow]
    headroom: Sequence[Headroom]
    curves: Sequence[tuple[str, Sequence[CurvePoint]]]
    """(stage, its curve rows)."""


class Figure(NamedTuple):
    """A picture of some stages in the Prefect UI."""

    name: str
    title: str
    stages: tuple[str, ...]
    """Those whose committed outputs it shows."""
    draw: Callable[[Committed], Drawn]


LOG = logging.getLogger("trajpilot")


def draw(stage: str, figure: Figure, committed: Committed) -> Picture | NotDrawn:
    """Draw a picture of a committed stage; one that cannot be drawn is returned and logged with its reason.

    A stage that had nothing to do is not logged.
    """
    picture: Picture | NotDrawn
    try:
        with listed(committed.config.evaluation):
            picture = fitted(figure.name, figure.title, figure.draw(committed))
    except NothingAsked as empty:
        return NotDrawn(figure.name, figure.title, str(empty))
    except (TrajPilotError, OSError, ValueError) as error:  # nothing to show, damage, a disk, numbers without a scale
        picture = NotDrawn(figure.name, figure.title, str(error) or type(error).__name__)
    if isinstance(picture, NotDrawn):
        LOG.info("%-13s no picture %r: %s", stage, picture.title, picture.reason)
    return picture
