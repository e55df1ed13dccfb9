"""The records of a picture, its size limit, and of a missing picture."""

import base64
from collections.abc import Callable
from typing import NamedTuple

from trajpilot_core.errors import TrajPilotError

MOST_BYTES = 200_000
"""Limit of a data URI: pictures are stored in Prefect's database."""
SVG = "image/svg+xml"


class NothingToDraw(TrajPilotError):
    """A picture has nothing to show, for the reason in the message."""


class NothingAsked(NothingToDraw):
    """The stage had nothing to do: the page shows the reason in place of the picture; it is not logged."""


class Drawn(NamedTuple):
    """A drawing."""

    content: bytes
    caption: str
    """What it shows and how to read it; contains no text of the data."""
    media: str = SVG
    smaller: "Callable[[], Drawn] | None" = None
    """Draws it again with fewer bytes; None: it cannot be smaller."""


class Picture(NamedTuple):
    """A picture that can be shown."""

    name: str
    title: str
    caption: str
    uri: str
    """Data URI of at most MOST_BYTES."""


class NotDrawn(NamedTuple):
    """A missing picture and the reason."""

    name: str
    title: str
    reason: str


def data_uri(drawn: Drawn) -> str:
    """Return the drawing as a data URI, which needs no web server."""
    return f"data:{drawn.media};base64,{base64.b64encode(drawn.content).decode()}"


def fitted(name: str, title: str, drawn: Drawn) -> Picture | NotDrawn:
    """Make a drawing smaller until it fits; one that cannot fit is left out, with its size as the reason."""
    uri = data_uri(drawn)
    while len(uri) > MOST_BYTES and drawn.smaller is not None:
        drawn = drawn.smaller()
        uri = data_uri(drawn)
    if len(uri) > MOST_BYTES:
        return NotDrawn(name, title, f"{len(uri) / 1e3:.0f} kB is too large; the limit is {MOST_BYTES / 1e3:.0f} kB")
    return Picture(name, title, drawn.caption, uri)
