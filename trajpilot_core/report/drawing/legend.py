"""Drawn charts with caption and legend, and the marks of the rows."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from trajpilot_core.report.drawing.charts import Series, legend_mark
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.report.tables.names import row_name

DEV_QUANTITIES = ("M@1", "R@5", "selection", "Mid mAcc", "Action", "-l1", "right", "action", "accuracy")
"""What selects the epoch that is kept, first found first."""


class Key(NamedTuple):
    """One entry of a legend."""

    name: str
    swatch: Markup
    row: str = ""
    """The row of the tables that it stands for; empty for any other line."""


class Chart(NamedTuple):
    """One drawn chart with its caption."""

    caption: str
    chart: Markup
    legend: Sequence[Key] = ()
    """Where the chart has its own."""


def keys_of_rows(variants: Iterable[str]) -> list[Key]:
    """Return the legend of some rows."""
    return [Key(row_name(v), legend_mark(v, mark_of(v)), v) for v in variants]


def keys_of(series: Iterable[Series]) -> list[Key]:
    """Return the legend of some lines."""
    return [Key(line.name, legend_mark(line.style, line.mark)) for line in series]
