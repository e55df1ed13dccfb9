"""What a picture is, how large it may be, and what stands in its place where there is none."""

import base64
from collections.abc import Callable
from typing import NamedTuple

from trajpilot_core.errors import TrajPilotError

MOST_BYTES = 200_000
"""Of a data URI: pictures lie in Prefect's database."""
SVG = "image/svg+xml"


class NothingToDraw(TrajPilotError):
    """A picture has nothing to show; the message says why."""


class NothingAsked(NothingToDraw):
    """The stage was asked for nothing: a page says so in the place of the picture, and the log says nothing."""


class Drawn(NamedTuple):
    """A drawing."""

    content: bytes
    caption: str
    """What is seen and how to read it, in our own words; no text of the data."""
    media: str = SVG
    smaller: "Callable[[], Drawn] | None" = None
    """Draws it again in fewer bytes; None: it cannot be smaller."""


class Picture(NamedTuple):
    """A picture that can be shown."""

    name: str
    title: str
    caption: str
    uri: str
    """Data URI of at most MOST_BYTES."""


class NotDrawn(NamedTuple):
    """A picture that there is not, and why."""

    name: str
    title: str
    reason: str


def data_uri(drawn: Drawn) -> str:
    """Return the drawing as a data URI, which needs no web server and no second request."""
    return f"data:{drawn.media};base64,{base64.b64encode(drawn.content).decode()}"


def fitted(name: str, title: str, drawn: Drawn) -> Picture | NotDrawn:
    """Make a drawing smaller until it fits; one that cannot be made to fit is left out, and its size said."""
    uri = data_uri(drawn)
    while len(uri) > MOST_BYTES and drawn.smaller is not None:
        drawn = drawn.smaller()
        uri = data_uri(drawn)
    if len(uri) > MOST_BYTES:
        return NotDrawn(name, title, f"{len(uri) / 1e3:.0f} kB are too large; at most {MOST_BYTES / 1e3:.0f} kB")
    return Picture(name, title, drawn.caption, uri)
