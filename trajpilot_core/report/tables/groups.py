"""Printed names of rows and metrics, and tables with a column per metric and rows in groups, by horizon or mean.

The rows are those of `trajpilot_core.methods`.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeVar

from schemas.results import Ceiling, Metric
from trajpilot_core.methods import METHODS
from trajpilot_core.metrics import of_table
from trajpilot_core.report.tables.table import Cell, Group, Label, Table


def open_metrics() -> tuple[str, ...]:
    """Return the columns of the paper's open-vocabulary table, and those that plugins add."""
    return of_table("open")


DAGGER = "†"
LEGEND = (
    f"{DAGGER}: does not count as trained and is no evidence for or against. By its interval over takes (of the paired "
    "difference, where there is one) it is not above every floor of its table (Majority, Previous and, for rows that "
    "are given the head motion of both ends, kNN-labels), or on dev a model behind it is not above its floors (a "
    "scorer: its gate and ranking are not above chance), was still improving, or fell from its best."
)
"""Meaning of the mark: printed once wherever it is used."""


def marked(name: str, row: str, undertrained: Collection[str]) -> str:
    """Return the printed name of a row, marked where it does not count as trained."""
    return name + (DAGGER if row in undertrained else "")


def row_name(variant: str) -> str:
    """Return the printed name of a row; an unknown id is returned as it is."""
    return next((method.name for method in METHODS if method.id == variant), variant)


Measured = TypeVar("Measured", Metric, Ceiling)
POOLED = {"plain": "mean of the horizons", "sample": "mean over all windows"}


def row_label(variant: str, undertrained: Collection[str], name: str = "", note: str = "") -> Label:
    """Return the first cell of a row, marked where it does not count as trained; `name`: another one than its own."""
    return Label(marked(name or row_name(variant), variant, undertrained), variant, note)


def grouped(
    id_: str,
    title: str,
    header: Sequence[str],
    figures: Iterable[Measured],
    rows: Callable[[Sequence[Measured]], Iterable[tuple[Cell, ...]]],
    over: tuple[tuple[str, int], ...] = (),
    *,
    means_first: bool = False,
) -> Table:
    """Build a table: horizons rising, then the plain mean, then the mean over windows; no empty row, no empty group.

    Args:
        header: of the columns below the names.
        rows: returns the rows of a group, the name of each in front.
        over: titles over the header.
        means_first: the means are above the horizons.
    """
    parts: dict[tuple[int, str], list[Measured]] = {}
    for figure in figures:
        pooling = figure.pooling if isinstance(figure, Metric) else "plain"
        of_means = (0 if means_first else 1 << 16, pooling)
        parts.setdefault(of_means if figure.horizon is None else (figure.horizon, ""), []).append(figure)
    groups: list[Group] = []
    filled: list[tuple[Cell, ...]] = []
    for (horizon, mean), inside in sorted(parts.items(), key=lambda part: part[0]):
        shown = [row for row in rows(inside) if any(row[1:])]
        windows = f"{inside[0].n_windows:,}".replace(",", "\u202f")  # thin spaces
        fewest = " at the horizon with the fewest" if mean == "plain" else ""
        size = f"{windows} windows, {inside[0].n_takes} takes{fewest}"
        groups += [Group(POOLED[mean] if mean else f"H = {horizon}", size, len(shown))] if shown else []
        filled += shown
    return Table(title, ("Method", *header), tuple(filled), over=over, id=id_, groups=tuple(groups))
