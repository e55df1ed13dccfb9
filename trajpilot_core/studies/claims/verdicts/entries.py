"""The same takes through three entries: which rows stand in opposite order. Only pixels of a video show motion."""

from itertools import combinations
from typing import NamedTuple

from schemas.claims import ENTRIES, ClaimsConfig
from trajpilot_core.methods import in_order
from trajpilot_core.studies.claims.evidence.readings import reading, rows_of
from trajpilot_core.studies.claims.evidence.statistics import Estimate
from trajpilot_core.studies.claims.evidence.tables import Evidence


class OppositePair(NamedTuple):
    """Two rows that two entries order differently, with row - reference in each."""

    row: str
    reference: str
    first: Estimate
    second: Estimate

    def is_shown(self) -> bool:
        """Return whether the intervals exclude zero on different sides, so that chance does not explain it."""
        low, high = sorted((self.first, self.second), key=lambda figure: figure.value)
        return low.is_below_zero() and high.is_above_zero()


class EntryOrders(NamedTuple):
    """The orders of the rows through two entries."""

    worlds: tuple[str, str]
    n_rows: int
    opposite: tuple[OppositePair, ...]

    @property
    def tau(self) -> float | None:
        """Kendall's rank correlation; None below two rows."""
        n_pairs = self.n_rows * (self.n_rows - 1) // 2
        return 1 - 2 * len(self.opposite) / n_pairs if n_pairs else None


def compare_entries(evidence: Evidence, metric: str, cfg: ClaimsConfig) -> tuple[EntryOrders, ...]:
    """Order the rows that two entries share in both, for every two of the three entries.

    Args:
        evidence: the tables.
        metric: one of `tables.METRICS`.
        cfg: planned seeds and resampling.
    """
    return tuple(_orders(evidence, (one, two), metric, cfg) for one, two in combinations(ENTRIES, 2))


def _orders(evidence: Evidence, worlds: tuple[str, str], metric: str, cfg: ClaimsConfig) -> EntryOrders:
    """Compare two entries."""
    rows = in_order(rows_of(evidence, worlds[0]) & rows_of(evidence, worlds[1]))
    figures = {row: [reading(evidence, world, row, None, metric, cfg) for world in worlds] for row in rows}
    levels = {row: (one.value, two.value) for row, (one, two) in figures.items() if one and two}
    opposite = []
    for row, reference in combinations(levels, 2):
        if (levels[row][0] - levels[reference][0]) * (levels[row][1] - levels[reference][1]) < 0:
            one, two = (reading(evidence, world, row, reference, metric, cfg) for world in worlds)
            opposite += [OppositePair(row, reference, one, two)] if one and two else []
    return EntryOrders(worlds, len(levels), tuple(opposite))
