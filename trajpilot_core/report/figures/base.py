"""The record of a picture of the UI, how it is drawn, and what it may weigh."""

import base64
from collections.abc import Callable
from typing import NamedTuple

from trajpilot_core.errors import TrajPilotError
from trajpilot_core.methods.plugged import listed
from trajpilot_core.report.committed import Committed

MOST_BYTES = 200_000
"""Limit of a data URI: pictures are stored in Prefect's database."""


class NothingToDraw(TrajPilotError):
    """A picture has nothing to show, for the reason in the message."""


class Drawn(NamedTuple):
    """A drawing."""

    content: bytes
    caption: str
    """What it shows and how to read it; contains no text of the data."""
    media: str = "image/svg+xml"


class Picture(NamedTuple):
    """A picture of a stage, or the reason why there is none."""

    name: str
    title: str
    text: str
    """Its caption; without a picture the reason."""
    uri: str = ""
    """Data URI of at most MOST_BYTES, which needs no web server; empty without a picture."""


class Figure(NamedTuple):
    """A picture of some stages in the Prefect UI."""

    name: str
    title: str
    stages: tuple[str, ...]
    """Those whose committed outputs it shows."""
    draw: Callable[[Committed], Drawn]


def draw(figure: Figure, committed: Committed) -> Picture:
    """Draw a picture of a committed stage; one that cannot be drawn is returned with its reason, which the UI shows."""
    try:
        with listed(committed.config.evaluation):
            content, caption, media = figure.draw(committed)
    except (TrajPilotError, OSError, ValueError) as error:  # nothing to show, damage, a disk, numbers without a scale
        return Picture(figure.name, figure.title, str(error) or type(error).__name__)
    uri = f"data:{media};base64,{base64.b64encode(content).decode()}"
    if len(uri) > MOST_BYTES:
        reason = f"{len(uri) / 1e3:.0f} kB is too large; the limit is {MOST_BYTES / 1e3:.0f} kB"
        return Picture(figure.name, figure.title, reason)
    return Picture(figure.name, figure.title, caption, uri)
