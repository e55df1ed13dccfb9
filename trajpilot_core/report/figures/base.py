"""The record of a picture of the UI, and how it is drawn."""

from collections.abc import Callable
from typing import NamedTuple

from trajpilot_core.errors import TrajPilotError
from trajpilot_core.methods.plugged import listed
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.svg_grid import Drawn, NotDrawn, Picture, fitted


class Figure(NamedTuple):
    """A picture of some stages in the Prefect UI."""

    name: str
    title: str
    stages: tuple[str, ...]
    """Those whose committed outputs it shows."""
    draw: Callable[[Committed], Drawn]


def draw(figure: Figure, committed: Committed) -> Picture | NotDrawn:
    """Draw a picture of a committed stage; one that cannot be drawn is returned with its reason, which the UI shows."""
    try:
        with listed(committed.config.evaluation):
            return fitted(figure.name, figure.title, figure.draw(committed))
    except (TrajPilotError, OSError, ValueError) as error:  # nothing to show, damage, a disk, numbers without a scale
        return NotDrawn(figure.name, figure.title, str(error) or type(error).__name__)
