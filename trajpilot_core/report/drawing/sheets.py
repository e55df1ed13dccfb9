"""Panels side by side with one legend: a matplotlib figure, as SVG for pages and the Prefect UI or as the paper's PDF.

Equal numbers give equal bytes. matplotlib is imported where something is drawn: commands need it rarely.
"""

import io
import re
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from markupsafe import Markup

from trajpilot_core.report.drawing.charts import INK, LINE, PAPER, SOFT
from trajpilot_core.report.drawing.row_styles import styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL_IN = (3.55, 2.4)
"""Width and height of a panel, inches: three are as wide as a page."""
LINE_IN, CHARACTER_IN, SAMPLE_IN, AXIS_IN = 0.18, 0.066, 0.55, 0.6
"""Height of a line of text, width of one of its characters, of a sample in a legend, and left of the axes, inches."""
STYLE: Mapping[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],  # the first one is part of matplotlib
    "font.size": 8.0,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": SOFT,
    "axes.facecolor": "none",
    "axes.linewidth": 0.6,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.xmargin": 0.03,
    "grid.color": LINE,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.columnspacing": 1.2,
    "legend.frameon": False,
    "legend.handlelength": 2.6,
    "lines.scale_dashes": False,
    "text.parse_math": False,  # a dollar in a label is a dollar
    "svg.fonttype": "none",
    "pdf.fonttype": 42,  # embeds the font
}
IN_TURN = threading.Lock()
THEMED = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", PAPER: "var(--bg)"}
"""Colour -> variable of the style sheet of a page, which has a dark theme too."""


class Panel(Protocol):
    """What has one pair of axes in a figure."""

    @property
    def title(self) -> str:
        """Printed above it."""

    @property
    def keys(self) -> Mapping[str, dict[str, Any]]:
        """Its entries of the legend: name -> properties of a line in matplotlib."""

    @property
    def description(self) -> str:
        """Its content in words."""

    def draw(self, axes: "Axes") -> None:
        """Draw it on empty axes."""


@contextmanager
def styled(salt: str = "") -> Iterator[None]:
    """Lend matplotlib with our style, to one thread at a time: its parameters are global.

    Args:
        salt: part of all ids within an SVG, so that those of two on one page differ.
    """
    import matplotlib

    with IN_TURN, matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        yield


def sheet(
    panels: Sequence[Panel], banner: str = "", columns: int = 3, panel_in: tuple[float, float] = PANEL_IN
) -> "Figure":
    """Draw panels in rows, the legend below them, and a notice above; called within `styled`."""
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.lines import Line2D
    from matplotlib.textpath import text_to_path

    columns = min(columns, len(panels))
    n_rows, width = -(-len(panels) // columns), columns * panel_in[0]
    keys: dict[str, dict[str, Any]] = {}
    for panel in panels:
        keys |= {name: look for name, look in panel.keys.items() if name not in keys}
    widths_pt = [text_to_path.get_text_width_height_descent(name, FontProperties(), False)[0] for name in keys]
    per_line = max(1, int(width / (SAMPLE_IN + max(widths_pt, default=0.0) / 72)))
    notice = textwrap.wrap(banner, int(width / CHARACTER_IN))
    height = n_rows * panel_in[1] + LINE_IN * (len(notice) - (-len(keys) // per_line))
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle("\n".join(notice), fontsize=8, color="#5f4300", backgroundcolor="#fff1cf")
    handles = [Line2D([], [], label=name, **look) for name, look in keys.items()]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=per_line)
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(n_rows, columns, index + 1)
        axes.set_title(textwrap.fill(panel.title, int((panel_in[0] - AXIS_IN) / CHARACTER_IN)))
        panel.draw(axes)
    return figure


def svg(
    panels: Sequence[Panel],
    banner: str = "",
    columns: int = 3,
    panel_in: tuple[float, float] = PANEL_IN,
    *,
    is_themed: bool = True,
) -> Markup:
    """Return panels as an SVG element that has its numbers as description for screen readers.

    Args:
        is_themed: its colours are the variables of a page.
    """
    description, file = " ".join(panel.description for panel in panels), io.StringIO()
    with styled(repr(panels)):
        no_metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        sheet(panels, banner, columns, panel_in).savefig(file, format="svg", metadata=no_metadata)
    text = re.sub('<g id="[^"]*"', "<g", file.getvalue().partition("<svg ")[2])  # ids that nothing refers to
    text = re.sub(' clip-path="[^"]*"|<clipPath.*?</clipPath>', "", text, flags=re.DOTALL)  # nothing exceeds its axes
    text = re.sub(' d="[^"]*"', lambda path: re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.1f}", path[0]), text)
    text = re.sub(r" *\n *", "\n", text.replace(" \nL ", "L"))
    text = text.replace('xmlns:xlink="http://www.w3.org/1999/xlink" ', "").replace("xlink:href", "href")
    if is_themed:
        names = {style.light: f"var(--{name})" for name, style in reversed(styles().items())} | THEMED
        text = re.sub("(?<=: )#[0-9a-f]{6}", lambda colour: names.get(colour[0], colour[0]), text)
    return Markup('<svg class="chart" role="img" aria-label="{}" ').format(description) + Markup(text)
