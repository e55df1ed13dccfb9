"""Draws the pictures of a stage; a failure to draw never ends a run."""

import logging

from trajpilot_core.errors import TrajPilotError
from trajpilot_core.methods.plugged import listed
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.svg_grid import NotDrawn, NothingAsked, NothingToDraw, Picture, fitted
from trajpilot_core.report.figures.base import Figure

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
