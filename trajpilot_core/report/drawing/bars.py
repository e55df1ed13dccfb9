"""Horizontal bars with names and numbers, as SVG of the size of the charts."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from trajpilot_core.report.drawing.charts import HEIGHT, WIDTH, chart_frame, element, empty, shortened

NAME_PX, NUMBER_PX, ROW_PX, TOP = 158, 44, 23, 8
MOST_ROWS = (HEIGHT - TOP - 20) // ROW_PX
LONGEST = 20


class Bar(NamedTuple):
    """One row: parts of different styles, one after the other."""

    name: str
    parts: tuple[tuple[str, int], ...]
    """(style, count)."""

    @property
    def total(self) -> int:
        """All parts together."""
        return sum(count for _, count in self.parts)


def bar_chart(title: str, unit: str, bars: Sequence[Bar]) -> Markup:
    """Draw bars at one scale; if there are too many, the last line gives the number of those not shown."""
    if not bars:
        return empty(title)
    shown = bars[:MOST_ROWS]
    scale = (WIDTH - NAME_PX - NUMBER_PX) / max(1, *(bar.total for bar in bars))
    rows = []
    for index, bar in enumerate(shown):
        at, y = float(NAME_PX), TOP + index * ROW_PX
        rows.append(
            element("text", shortened(bar.name, LONGEST), class_="name", x=NAME_PX - 8, y=y + 12, text_anchor="end")
        )
        for style, count in bar.parts:
            wide, x = round(count * scale, 1), round(at, 1)
            rows.append(element("rect", class_=f"bar {style}", x=x, y=y, width=wide, height=ROW_PX - 7))
            at += count * scale
        rows.append(element("text", f"{bar.total:,}", class_="tick", x=round(at + 5, 1), y=y + 12))
    left = len(bars) - len(shown)
    note = f"{unit}; {left} more not shown" if left else unit
    below = TOP + len(shown) * ROW_PX + 14
    rows.append(element("text", note, class_="label", x=NAME_PX, y=below))
    description = "; ".join(
        f"{bar.name}: " + ", ".join(f"{style} {count}" for style, count in bar.parts) for bar in shown
    )
    return chart_frame(f"{title}. {description}", rows)
