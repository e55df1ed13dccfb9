"""Horizontal bars with names and numbers, as SVG of the size of the charts."""

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from trajpilot_core.report.drawing.charts import HEIGHT, WIDTH

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
    """Draw bars at one scale; where there are too many the last line says how many are not shown."""
    if not bars:
        return Markup('<p class="empty">{}: nothing to draw.</p>').format(title)
    shown = bars[:MOST_ROWS]
    scale = (WIDTH - NAME_PX - NUMBER_PX) / max(1, *(bar.total for bar in bars))
    rows = [_row(bar, TOP + index * ROW_PX, scale) for index, bar in enumerate(shown)]
    left = len(bars) - len(shown)
    note = f"{unit}; {left} more not shown" if left else unit
    rows.append(
        Markup('<text class="label" x="{x}" y="{y}">{note}</text>').format(
            x=NAME_PX, y=TOP + len(shown) * ROW_PX + 14, note=note
        )
    )
    said = "; ".join(f"{bar.name}: " + ", ".join(f"{style} {count}" for style, count in bar.parts) for bar in shown)
    return Markup(
        '<svg class="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{title}. {said}">{rows}</svg>'
    ).format(w=WIDTH, h=HEIGHT, title=title, said=said, rows=Markup("").join(rows))


def _row(bar: Bar, y: float, scale: float) -> Markup:
    """Draw one row."""
    at, pieces = float(NAME_PX), []
    for style, count in bar.parts:
        pieces.append(
            Markup('<rect class="bar {style}" x="{x}" y="{y}" width="{w}" height="{h}"/>').format(
                style=style, x=round(at, 1), y=y, w=round(count * scale, 1), h=ROW_PX - 7
            )
        )
        at += count * scale
    name = bar.name if len(bar.name) <= LONGEST else bar.name[: LONGEST - 1] + "…"
    return Markup(
        '<text class="name" x="{nx}" y="{ty}" text-anchor="end">{name}</text>{pieces}'
        '<text class="tick" x="{vx}" y="{ty}">{value}</text>'
    ).format(
        nx=NAME_PX - 8,
        ty=y + 12,
        name=name,
        pieces=Markup("").join(pieces),
        vx=round(at + 5, 1),
        value=f"{bar.total:,}",
    )
