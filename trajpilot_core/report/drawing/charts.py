"""Charts as data, and how one is drawn on the axes of a figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from trajpilot_core.report.drawing.row_styles import style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, SOFT, LINE, PAPER = "#1d2127", "#5c6570", "#dcdcd4", "#ffffff"
"""Colours of text, of axes, of their grid, and of the page."""
MARKS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "plus": "P", "cross": "X", "none": ""}
Kind = Literal["band", "line", "thin", "bound", "whisker", "bar"]
OF_A_TICK, WIDEST = 0.8, 0.2
"""Share of the space between two ticks that the whiskers or bars at one tick use, and what one uses at most."""


def shortened(text: str, longest: int) -> str:
    """Cut a text to at most `longest` characters; a cut text ends in an ellipsis."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


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
    """What one row, or one model, has in a chart."""

    name: str
    style: str
    """A row, or one of `row_styles.SPARE`."""
    points: tuple[Point, ...]
    kind: Kind = "band"
    """`band`: a line with intervals, `line`: without; `thin`: without marks; `bound`: thin, with a bar at every point;
    `whisker` and `bar`: next to those of the other rows at every x."""
    marked: tuple[float, ...] | None = None
    """The points, by x, that have a mark; None: all."""

    @property
    def look(self) -> dict[str, Any]:
        """Properties of its line in matplotlib."""
        style = style_of(self.style)
        look: dict[str, Any] = {
            "color": style.light,
            "linestyle": (0, tuple(map(float, style.dash.split()))) if style.dash else "-",
            "linewidth": style.width * 0.75,
            "marker": "" if self.marked == () else MARKS[style.mark],
            "markersize": 5.0,
            "markeredgecolor": PAPER,
            "markeredgewidth": 0.5,
            "clip_on": False,  # a mark at the end of an axis is whole
        }
        thin = {"linestyle": "-", "linewidth": 0.6, "alpha": 0.75}
        changes: dict[str, dict[str, Any]] = {
            "thin": {**thin, "marker": ""},
            "bound": {**thin, "marker": "_", "markersize": 9.0, "markeredgecolor": style.light, "markeredgewidth": 1.2},
            "whisker": {"linestyle": "none"},
            "bar": {"linestyle": "none", "marker": "s", "markersize": 7.0},
        }
        return look | changes.get(self.kind, {})


@dataclass(frozen=True)
class Chart:
    """One panel of a figure."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    y_from_zero: bool = True
    x_names: Sequence[str] = ()
    """Names of the places 0, 1, 2 ... on the horizontal axis; none: numbers."""

    @property
    def keys(self) -> Mapping[str, dict[str, Any]]:
        """Its entries of a legend: name -> properties of the line."""
        return {line.name: line.look for line in self.series if line.kind not in ("thin", "bound")}

    @property
    def description(self) -> str:
        """Its numbers in words; of long lines about every twelfth part."""
        lines = "; ".join(
            f"{line.name}: " + ", ".join(f"{p.x:g}: {p.y:.1f}" for p in line.points[:: max(1, len(line.points) // 12)])
            for line in self.series
        )
        return f"{self.title}. {lines}"

    def draw(self, axes: "Axes") -> None:
        """Draw it on empty axes."""
        points = [point for line in self.series for point in line.points]
        if not points:
            axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)
        beside = [line for line in self.series if line.kind in ("whisker", "bar")]
        step = min(WIDEST, OF_A_TICK / max(1, len(beside)))
        for line in self.series:
            if line in beside:
                _draw_beside(axes, line, (beside.index(line) - (len(beside) - 1) / 2) * step, step)
            else:
                _draw_line(axes, line)
        if beside and points:
            axes.axhline(0.0, color=INK, linewidth=1.0)
            axes.set_xlim(min(p.x for p in points) - 0.5, max(p.x for p in points) + 0.5)
        if self.y_from_zero and all(p.ends[0] >= 0.0 for p in points):
            axes.set_ylim(bottom=0.0)
        elif self.y_from_zero and all(p.ends[1] <= 0.0 for p in points):
            axes.set_ylim(top=0.0)
        axes.set_xlabel(self.x_label)
        axes.set_ylabel(self.y_label)
        if self.x_names:
            axes.set_xticks(range(len(self.x_names)), self.x_names)
        else:
            axes.locator_params("x", integer=True, nbins=7, min_n_ticks=1)


def _draw_line(axes: "Axes", line: Series) -> None:
    """Draw a line with its marks and its band."""
    xs = [p.x for p in line.points]
    marks = None if line.marked is None else [at for at, x in enumerate(xs) if x in line.marked]
    axes.plot(xs, [p.y for p in line.points], markevery=marks, **line.look)
    if line.kind == "band" and any(p.low != p.high for p in line.points):
        low, high = zip(*(p.ends for p in line.points), strict=True)
        axes.fill_between(xs, low, high, color=line.look["color"], alpha=0.14, linewidth=0)


def _draw_beside(axes: "Axes", line: Series, shift: float, width: float) -> None:
    """Draw bars or marks with whiskers, moved aside by `shift`."""
    xs, ys = [p.x + shift for p in line.points], [p.y for p in line.points]
    if line.kind == "bar":
        axes.bar(xs, ys, width, color=line.look["color"], edgecolor=PAPER, linewidth=0.5)
    colour = INK if line.kind == "bar" else line.look["color"]
    axes.vlines(xs, [p.ends[0] for p in line.points], [p.ends[1] for p in line.points], color=colour, linewidth=1.2)
    if line.kind == "whisker":
        axes.plot(xs, ys, **line.look)
