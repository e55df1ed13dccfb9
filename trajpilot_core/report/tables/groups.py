"""Printed names of rows and metrics, and tables with a column per metric and rows in groups, by horizon or mean.

The rows are those of `trajpilot_core.methods`. The HTML page lays the tables out by one macro; `latex.document` and
`offline.table_json` print the same records.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from schemas.results import Ceiling, Metric
from trajpilot_core.methods import METHODS
from trajpilot_core.metrics import METRICS, of_table


def open_metrics() -> tuple[str, ...]:
    """Return the columns of the paper's open-vocabulary table, and those that plugins add."""
    return of_table("open")


def descriptions() -> dict[str, str]:
    """Return the description of each metric."""
    return {spec.id: spec.description for spec in METRICS.values()}


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
GroupCell = TypeVar("GroupCell")
POOLED = {"plain": "mean of the horizons", "sample": "mean over all windows"}


@dataclass(frozen=True)
class TableRow(Generic[GroupCell]):
    """One row of the tables; a cell per metric."""

    variant: str
    name: str
    cells: tuple[GroupCell, ...]
    is_undertrained: bool = False
    note: str = ""
    """Explanation of the row, where its name needs one."""

    @property
    def label(self) -> str:
        """Its name, marked where it does not count as trained."""
        return self.name + (DAGGER if self.is_undertrained else "")


@dataclass(frozen=True)
class Group(Generic[GroupCell]):
    """The rows of one horizon or pooling."""

    title: str
    n_windows: int
    n_takes: int
    """For a mean over horizons, that of the horizon with the fewest."""
    rows: tuple[TableRow[GroupCell], ...]

    @property
    def takes(self) -> str:
        """Number of takes; for a mean over horizons, that of the horizon with the fewest."""
        return f"{self.n_takes} takes" + (" at the horizon with the fewest" if self.title == POOLED["plain"] else "")


@dataclass(frozen=True)
class GroupedTable(Generic[GroupCell]):
    """One table of the report."""

    id: str
    title: str
    metrics: tuple[str, ...]
    groups: tuple[Group[GroupCell], ...]

    def cells(self) -> list[GroupCell]:
        """All cells, in reading order."""
        return [cell for group in self.groups for row in group.rows for cell in row.cells]


def grouped(
    id_: str,
    title: str,
    metrics: Sequence[str],
    figures: Iterable[Measured],
    rows: Callable[[Sequence[Measured]], Iterable[TableRow[GroupCell]]],
    *,
    means_first: bool = False,
) -> GroupedTable[GroupCell]:
    """Build a table: horizons rising, then the plain mean, then the mean over windows; no empty row, no empty group.

    Args:
        metrics: its columns.
        means_first: the means are above the horizons.
    """
    parts: dict[tuple[int, str], list[Measured]] = {}
    for figure in figures:
        pooling = figure.pooling if isinstance(figure, Metric) else "plain"
        of_means = (0 if means_first else 1 << 16, pooling)
        parts.setdefault(of_means if figure.horizon is None else (figure.horizon, ""), []).append(figure)
    groups = []
    for (horizon, mean), inside in sorted(parts.items(), key=lambda part: part[0]):
        filled = tuple(row for row in rows(inside) if row.cells)
        first, heading = inside[0], POOLED[mean] if mean else f"H = {horizon}"
        groups += [Group(heading, first.n_windows, first.n_takes, filled)] if filled else []
    return GroupedTable(id_, title, tuple(metrics), tuple(groups))
