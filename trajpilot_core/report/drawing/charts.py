"""Charts as SVG text: no script, colours and dashes from the page's style sheet, a description for screen readers.

Every text is escaped by markupsafe. Coordinates are rounded, so that equal numbers give equal bytes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from trajpilot_core.report.drawing.row_styles import style_of
from trajpilot_core.report.tables.table import row_name


def element(name: str, *inside: str, **attributes: object) -> Markup:
    """Return an element; texts and attributes are escaped, and equal arguments give equal bytes.

    Args:
        inside: texts and elements; without any the element closes itself.
        attributes: in this order; `class_` means class, `text_anchor` text-anchor.
    """
    pairs = ((key.rstrip("_").replace("_", "-"), value) for key, value in attributes.items())
    head = Markup(name) + Markup("").join(Markup(' {}="{}"').format(*pair) for pair in pairs)
    if not inside:
        return Markup("<{}/>").format(head)
    return Markup("<{}>{}</{}>").format(head, Markup("").join(inside), Markup(name))


def empty(title: str) -> Markup:
    """Return the replacement of a chart without points."""
    return element("p", f"{title}: nothing to draw.", class_="empty")


def shortened(text: str, longest: int) -> str:
    """Cut a text to at most `longest` characters; a cut text ends in an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


WIDTH, HEIGHT = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 44, 14, 14, 38
BESIDE = 0.19
"""Distance of neighbouring whiskers, in units of x."""
OF_A_TICK = 0.8
"""Share of the space between two ticks that the whiskers at one tick use."""
MARKS = {
    "circle": Markup('<circle cx="{x}" cy="{y}" r="3.4"/>'),
    "square": Markup('<rect x="{x0}" y="{y0}" width="6.4" height="6.4"/>'),
    "triangle": Markup('<path d="M{x} {y0}l3.9 6.8h-7.8z"/>'),
    "diamond": Markup('<path d="M{x} {y0}l4.2 4.2l-4.2 4.2l-4.2-4.2z"/>'),
    "plus": Markup('<path d="M{x} {y0}h1.5v2.7h2.7v3h-2.7v2.7h-3v-2.7h-2.7v-3h2.7v-2.7z"/>'),
    "cross": Markup('<path d="M{x0} {y0}m0 1.6l1.6-1.6 2 2 2-2 1.6 1.6-2 2 2 2-1.6 1.6-2-2-2 2-1.6-1.6 2-2z"/>'),
    "none": Markup(""),
}


class Point(NamedTuple):
    """One point with its interval; without one, `low` and `high` are None."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the interval; without one, the point itself."""
        return (self.y, self.y) if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Series:
    """One line; `style` is the class that the style sheet colours."""

    name: str
    style: str
    points: tuple[Point, ...]
    mark: str = "circle"
    has_band: bool = True


def nice_ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers that cover [low, high]."""
    span = max(high - low, 1e-9)
    step = 10.0 ** math.floor(math.log10(span / 5))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if step * factor * 5 >= span * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]


@dataclass(frozen=True)
class Scale:
    """Data to pixels."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float

    def x(self, value: float) -> float:
        """Horizontal position in pixels."""
        share = (value - self.x_low) / (self.x_high - self.x_low) if self.x_high > self.x_low else 0.5
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def y(self, value: float) -> float:
        """Vertical position in pixels, cut at the plot's edge."""
        share = (value - self.y_low) / (self.y_high - self.y_low) if self.y_high > self.y_low else 0.5
        return round(HEIGHT - BOTTOM - min(max(share, 0.0), 1.0) * (HEIGHT - TOP - BOTTOM), 1)


def line_chart(
    title: str,
    x_label: str,
    y_label: str,
    series: Sequence[Series],
    bounds: Sequence[Series] = (),
    thin: Sequence[Series] = (),
    *,
    x_ticks: Sequence[float] = (),
    y_from_zero: bool = True,
) -> Markup:
    """Draw lines with bands, `bounds` as thin lines with bars, `thin` lines without; an empty chart is a sentence.

    Args:
        x_ticks: none: every x of the points.
    """
    points = [point for line in (*series, *bounds, *thin) for point in line.points]
    if not points:
        return empty(title)
    low, high = min(p.ends[0] for p in points), max(p.ends[1] for p in points)
    ticks = nice_ticks(min(low, 0.0) if y_from_zero else low, max(high, 0.0) if y_from_zero else high)
    xs = sorted({p.x for p in points})
    pad = 0.03 * (xs[-1] - xs[0])
    scale = Scale(xs[0] - pad, xs[-1] + pad, ticks[0], ticks[-1])
    body = [_frame(x_label, y_label, scale, x_ticks or xs, ticks)]
    body += [_band(line, scale) for line in series if line.has_band]
    body += [element("g", _polyline(line, scale), class_=f"thin {line.style}") for line in thin]
    body += [_line(line, scale, is_bound=True) for line in bounds]
    return _svg(title, [*series, *bounds, *thin], body + [_line(line, scale) for line in series])


def whisker_chart(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> Markup:
    """Draw points with interval whiskers, side by side at every x; zero is a heavy line."""
    points = [point for line in series for point in line.points]
    if not points:
        return empty(title)
    ticks = nice_ticks(min(0.0, *(p.ends[0] for p in points)), max(0.0, *(p.ends[1] for p in points)))
    xs = sorted({p.x for p in points})
    step = BESIDE if len(xs) == 1 else min(BESIDE, OF_A_TICK / len(series))
    room = max(0.5, step * len(series) / 2)
    scale = Scale(xs[0] - room, xs[-1] + room, ticks[0], ticks[-1])
    body = [
        _frame(x_label, y_label, scale, xs, ticks),
        element("line", class_="zero", x1=LEFT, x2=WIDTH - RIGHT, y1=scale.y(0.0), y2=scale.y(0.0)),
    ]
    for index, line in enumerate(series):
        shift, parts = (index - (len(series) - 1) / 2) * step, []
        for p in line.points:
            x = scale.x(p.x + shift)
            low, high = p.ends
            interval = "too few takes" if p.low is None else f"[{low:+.1f}, {high:+.1f}]"
            numbers = element("title", f"{line.name}, {_short(p.x)}: {p.y:+.1f} {interval}")
            whisker = element("line", x1=x, x2=x, y1=scale.y(low), y2=scale.y(high))
            parts.append(element("g", numbers, whisker, _mark(line.mark, x, scale.y(p.y))))
        body.append(element("g", *parts, class_=f"line {line.style}"))
    return _svg(title, series, body)


def _polyline(line: Series, scale: Scale) -> Markup:
    """Join the points of a line."""
    return element("polyline", points=" ".join(f"{scale.x(p.x)},{scale.y(p.y)}" for p in line.points))


def _svg(title: str, series: Sequence[Series], body: Sequence[Markup]) -> Markup:
    """Wrap the parts; the description lists every number."""
    lines = "; ".join(
        f"{line.name}: "
        + ", ".join(f"{_short(p.x)}: {p.y:.1f}" for p in line.points[:: max(1, len(line.points) // 12)])
        for line in series
    )
    return chart_frame(f"{title}. {lines}", body)


def chart_frame(description: str, body: Sequence[Markup]) -> Markup:
    """Return a chart with its description."""
    size = f"0 0 {WIDTH} {HEIGHT}"
    return element("svg", *body, class_="chart", viewBox=size, role="img", aria_label=description)


def _short(value: float) -> str:
    """Print a tick without needless zeros."""
    return f"{value:g}".replace("-", "−")


def _frame(x_label: str, y_label: str, scale: Scale, x_ticks: Iterable[float], ticks: Sequence[float]) -> Markup:
    """Draw grid, tick labels and axis labels."""
    parts, right, below = [], WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in ticks:
        y = scale.y(tick)
        parts.append(element("line", class_="grid", x1=LEFT, x2=right, y1=y, y2=y))
        parts.append(element("text", _short(tick), class_="tick", x=LEFT - 6, y=y + 3.5, text_anchor="end"))
    for tick in x_ticks:
        parts.append(element("text", _short(tick), class_="tick", x=scale.x(tick), y=below + 15, text_anchor="middle"))
    middle, turned = (LEFT + right) / 2, f"translate(11 {(TOP + below) / 2}) rotate(-90)"
    parts.append(element("text", x_label, class_="label", x=middle, y=HEIGHT - 6, text_anchor="middle"))
    parts.append(element("text", y_label, class_="label", transform=turned, text_anchor="middle"))
    return Markup("").join(parts)


def _band(line: Series, scale: Scale) -> Markup:
    """Draw the interval as a band; lines without intervals have none."""
    if all(p.low == p.high for p in line.points):
        return Markup("")
    edge = [(p.x, p.ends[1]) for p in line.points] + [(p.x, p.ends[0]) for p in reversed(line.points)]
    path = " ".join(f"{scale.x(x)},{scale.y(y)}" for x, y in edge)
    return element("polygon", class_=f"band {line.style}", points=path)


def _line(line: Series, scale: Scale, *, is_bound: bool = False) -> Markup:
    """Draw a line and its marks, or a bound with a bar at every point; each has its numbers as tooltip."""
    marks = []
    for p in line.points if is_bound or line.mark != "none" else ():
        x, y = scale.x(p.x), scale.y(p.y)
        mark = element("path", d=f"M{round(x - 7, 1)} {y}h14") if is_bound else _mark(line.mark, x, y)
        marks.append(element("g", element("title", f"{line.name}, {_short(p.x)}: {p.y:.2f}"), mark))
    kind = "bound" if is_bound else "line"
    return element("g", _polyline(line, scale), *marks, class_=f"{kind} {line.style}")


def _mark(kind: str, x: float, y: float) -> Markup:
    """Draw one mark centred at (x, y) pixels."""
    half = {"square": 3.2, "triangle": 4.4, "diamond": 4.2, "plus": 4.2, "cross": 3.6}.get(kind, 0.0)
    return MARKS[kind].format(x=x, y=y, x0=round(x - half, 1), y0=round(y - half, 1))


def legend_mark(line_style: str, mark: str) -> Markup:
    """Draw the sample of a line for a legend."""
    return swatch(f"line {line_style}", _mark(mark, 15, 6))


def swatch(class_: str, mark: Markup) -> Markup:
    """Draw a short line with a mark on it, for a legend."""
    line = element("g", element("polyline", points="1,6 29,6"), mark, class_=class_)
    return element("svg", line, class_="swatch", viewBox="0 0 30 12", aria_hidden="true")


class Key(NamedTuple):
    """One entry of a legend."""

    name: str
    swatch: Markup
    row: str = ""
    """Id of its row of the tables; empty for any other line."""


class Chart(NamedTuple):
    """One drawn chart with its caption."""

    caption: str
    chart: Markup
    legend: Sequence[Key] = ()
    """Empty where several charts share one."""


def keys_of_rows(variants: Iterable[str]) -> list[Key]:
    """Return the legend of some rows."""
    return [Key(row_name(v), legend_mark(v, style_of(v).mark), v) for v in variants]


def keys_of(series: Iterable[Series]) -> list[Key]:
    """Return the legend of some lines."""
    return [Key(line.name, legend_mark(line.style, line.mark)) for line in series]
