"""Charts side by side in one SVG file that carries its own colours, and what a picture of the UI may weigh.

Equal numbers give equal bytes.
"""

import base64
import re
from collections.abc import Sequence
from importlib import resources
from typing import NamedTuple

from markupsafe import Markup

from trajpilot_core.errors import TrajPilotError
from trajpilot_core.report.drawing.charts import HEIGHT, WIDTH, Chart, Key, element
from trajpilot_core.report.drawing.row_styles import colours, row_rules

COLUMNS = 2
"""Charts side by side: as many as the UI shows at full size."""
GAP, TITLE, KEY, KEY_WIDTH, BANNER = 16, 26, 22, 190, 34
"""Pixels between charts, above a chart, of a legend's entry (height, smallest width), and of the banner."""
SWATCH, CHARACTER = 36, 6.8
"""Pixels before the name of a legend's entry, and of one character of it."""
MOST_BYTES = 200_000
"""Limit of a data URI: pictures are stored in Prefect's database."""


def style() -> Markup:
    """Return the style sheet: the page's rules of charts, its colours in light, and colours and dashes of the rows."""
    files = resources.files("trajpilot_core.report").joinpath("templates")
    page, *sheets = (
        files.joinpath(f"{name}.css").read_text(encoding="utf-8") for name in ("report", "chart", "picture")
    )
    light = dict(re.findall(r"--([\w-]+): (#\w+);", page[: page.index("}")]))
    light |= {name: on_white for name, (on_white, _) in colours().items()}
    rules = "".join(sheets) + row_rules()  # our own text, no data
    return Markup(re.sub(r"var\(--([\w-]+)\)", lambda found: light[found[1]], rules))


def sheet(panels: Sequence[Chart], keys: Sequence[Key], banner: str = "") -> bytes:
    """Lay charts out in rows, the legend below them; `banner`: a notice above the charts."""
    columns = max(1, min(COLUMNS, len(panels)))
    rows = -(-len(panels) // columns)
    width = columns * (WIDTH + GAP) + GAP
    above = BANNER if banner else 0
    top = above + rows * (TITLE + HEIGHT + GAP)
    key_width = max([KEY_WIDTH, *(round(SWATCH + CHARACTER * len(key.name)) + GAP for key in keys)])
    per_line = max(1, width // key_width)
    height = top + KEY * -(-len(keys) // per_line) + GAP
    parts = [_panel(panel, index % columns, index // columns, above) for index, panel in enumerate(panels)]
    places = [divmod(index, per_line) for index in range(len(keys))]
    for key, (line, at) in zip(keys, places, strict=True):
        x, y = GAP + key_width * at, top + KEY * line
        parts.append(_placed(key.swatch, x, y + 4, 30, 12))
        parts[-1] += element("text", key.name, class_="key", x=x + SWATCH, y=y + 14)
    if banner:
        parts.append(element("rect", class_="banner", x=0, y=0, width=width, height=BANNER - 6))
        parts[-1] += element("text", banner, class_="warning", x=GAP, y=BANNER - 14)
    return standalone(width, height, parts)


def standalone(width: float, height: float, parts: Sequence[Markup]) -> bytes:
    """Return a standalone picture with its own style sheet and background."""
    sized: dict[str, object] = {"width": width, "height": height}
    page = element("rect", class_="page", x=0, y=0, **sized)
    inside = (element("style", style()), page, Markup("\n").join(parts))
    space = "http://www.w3.org/2000/svg"
    return f"{element('svg', *inside, xmlns=space, viewBox=f'0 0 {width} {height}', **sized)}\n".encode()


def _panel(panel: Chart, column: int, row: int, above: int) -> Markup:
    """Place one chart under its title; an empty one reads "not run"."""
    x, y = GAP + column * (WIDTH + GAP), above + row * (TITLE + HEIGHT + GAP) + TITLE
    heading = element("text", panel.caption, class_="title", x=x, y=y - 8)
    if not panel.chart.startswith("<svg "):
        return heading + element("text", "not run", class_="label", x=x, y=y + 20)
    return heading + _placed(panel.chart, x, y, WIDTH, HEIGHT)


def _placed(drawing: Markup, x: float, y: float, width: int, height: int) -> Markup:
    """Place an SVG element inside another."""
    frame = Markup('<svg x="{x}" y="{y}" width="{w}" height="{h}" ').format(x=x, y=y, w=width, h=height)
    return frame + drawing[len("<svg ") :]


class NothingToDraw(TrajPilotError):
    """A picture has nothing to show, for the reason in the message."""


class Drawn(NamedTuple):
    """A drawing."""

    content: bytes
    caption: str
    """What it shows and how to read it; contains no text of the data."""


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


def fitted(name: str, title: str, picture: Drawn) -> Picture | NotDrawn:
    """Return a drawing as a data URI, which needs no web server; one that is too large is left out with its size."""
    uri = f"data:image/svg+xml;base64,{base64.b64encode(picture.content).decode()}"
    if len(uri) > MOST_BYTES:
        return NotDrawn(name, title, f"{len(uri) / 1e3:.0f} kB is too large; the limit is {MOST_BYTES / 1e3:.0f} kB")
    return Picture(name, title, picture.caption, uri)
