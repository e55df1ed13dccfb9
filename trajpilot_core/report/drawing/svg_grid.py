"""Charts side by side in one SVG file that carries its own colours. Equal numbers give equal bytes."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from trajpilot_core.report.drawing.charts import HEIGHT, WIDTH
from trajpilot_core.report.drawing.legend import Key
from trajpilot_core.report.drawing.svg import element

GAP, TITLE, KEY, KEY_WIDTH, BANNER = 16, 26, 22, 190, 34
"""Pixels between charts, above a chart, of a legend's entry (height, least width), and of the line above all."""
SWATCH, CHARACTER = 36, 6.8
"""Pixels before the name of an entry of the legend, and of one of its characters."""


class Panel(NamedTuple):
    """One chart with its title."""

    title: str
    chart: Markup


def sheet(panels: Sequence[Panel], keys: Sequence[Key], style: Markup, columns: int = 3, banner: str = "") -> bytes:
    """Lay charts out in rows, the legend below them.

    Args:
        panels: the charts, as `report.charts` draws them.
        banner: what must be read before all else, above the charts.
    """
    columns = max(1, min(columns, len(panels)))
    rows = -(-len(panels) // columns)
    width = columns * (WIDTH + GAP) + GAP
    above = BANNER if banner else 0
    top = above + rows * (TITLE + HEIGHT + GAP)
    key_width = max([KEY_WIDTH, *(round(SWATCH + CHARACTER * len(key.name)) + GAP for key in keys)])
    per_line = max(1, width // key_width)
    height = top + KEY * -(-len(keys) // per_line) + GAP
    parts = [_panel(panel, index % columns, index // columns, above) for index, panel in enumerate(panels)]
    places = [divmod(index, per_line) for index in range(len(keys))]
    parts += [_key(key, key_width * at, top + KEY * line) for key, (line, at) in zip(keys, places, strict=True)]
    parts += [_banner(banner, width)] if banner else []
    return standalone(width, height, style, parts)


def standalone(width: float, height: float, style: Markup, parts: Sequence[Markup]) -> bytes:
    """Return a picture that stands alone, with its own style sheet, on a page of its size."""
    sized: dict[str, object] = {"width": width, "height": height}
    page = element("rect", class_="page", x=0, y=0, **sized)
    inside = (element("style", style), page, Markup("\n").join(parts))
    space = "http://www.w3.org/2000/svg"
    return f"{element('svg', *inside, xmlns=space, viewBox=f'0 0 {width} {height}', **sized)}\n".encode()


def _banner(text: str, width: int) -> Markup:
    """Write a line over the whole width."""
    ground = element("rect", class_="banner", x=0, y=0, width=width, height=BANNER - 6)
    return ground + element("text", text, class_="warning", x=GAP, y=BANNER - 14)


def _panel(panel: Panel, column: int, row: int, above: int) -> Markup:
    """Place one chart under its title; where nothing was drawn it says so."""
    x, y = GAP + column * (WIDTH + GAP), above + row * (TITLE + HEIGHT + GAP) + TITLE
    heading = element("text", panel.title, class_="title", x=x, y=y - 8)
    if not panel.chart.startswith("<svg "):
        return heading + element("text", "not run", class_="label", x=x, y=y + 20)
    return heading + _placed(panel.chart, x, y, WIDTH, HEIGHT)


def _placed(drawing: Markup, x: float, y: float, width: int, height: int) -> Markup:
    """Place an SVG element inside another."""
    frame = Markup('<svg x="{x}" y="{y}" width="{w}" height="{h}" ').format(x=x, y=y, w=width, h=height)
    return frame + drawing[len("<svg ") :]


def _key(key: Key, right: int, y: int) -> Markup:
    """Place one entry of the legend."""
    x = GAP + right
    text = element("text", key.name, class_="key", x=x + SWATCH, y=y + 14)
    return _placed(key.swatch, x, y + 4, 30, 12) + text
