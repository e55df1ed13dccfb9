"""Tables with a column per metric and rows in groups, one group per horizon or mean.

The HTML page lays them out by one macro; `latex.document` and `json_report.table_json` print the same records.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from schemas.results import Ceiling, Metric
from trajpilot_core.report.tables.names import DAGGER

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
