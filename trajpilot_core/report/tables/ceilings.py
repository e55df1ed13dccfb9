"""Every row next to the exact ceiling of what it sees; in a simulated world only.

Source of the ceilings: docs/decisions/ceiling.md. How they are shown: docs/decisions/report.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from schemas.results import Ceiling
from trajpilot_core.methods import in_order, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.metrics import of_table, with_ceiling
from trajpilot_core.report.tables.groups import GroupedTable, TableRow, grouped, row_name
from trajpilot_core.report.tables.results import TOO_FEW
from trajpilot_core.report.tables.table import number
from trajpilot_core.simworld.inference.visible import KINDS, InputKind

INFORMATION = KINDS
"""Rows of the kinds of information (no motion, motion of the endpoints, all motion); per horizon only these."""
GOAL: InputKind = "endpoint_traj"
"""The ceiling of all rows that see no step between Start and Goal."""
KEY_METRICS = ("M@1", "MSeq")
AFTER_START = of_table("anticipation")
State = Literal["below", "level", "open", "warn", "broken"]
Whole = Literal["absent", "kept", "warned", "broken", "open"]
"""State of all figures together."""
WORDS: dict[State, str] = {
    "below": "below",
    "level": "above, within 3 s.e.",
    "open": TOO_FEW,
    "warn": "ABOVE: warns",
    "broken": "ABOVE: a leak",
}


class CeilingCell(NamedTuple):
    """One row's value of one metric, its ceiling, and the verdict."""

    row: Ceiling
    state: State

    @property
    def key(self) -> str:
        """Name of the cell, the same in HTML and JSON."""
        return "|".join((self.row.variant, str(self.row.horizon or "plain"), self.row.metric))

    @property
    def value(self) -> str:
        """Value of the row, as printed."""
        return number(self.row.value)

    @property
    def ceiling(self) -> str:
        """The ceiling, as printed."""
        return number(self.row.ceiling)

    @property
    def difference(self) -> str:
        """Value minus ceiling with its standard error, as printed."""
        error = number(self.row.standard_error) if math.isfinite(self.row.standard_error) else "–"
        return f"{number(self.row.difference, is_signed=True)} ({error})"

    @property
    def words(self) -> str:
        """The verdict in words."""
        return WORDS[self.state]


@dataclass(frozen=True)
class Ceilings:
    """The content of the page on ceilings."""

    state: Whole
    headline: str
    broken: tuple[str, ...]
    """One sentence per binding figure above its ceiling."""
    recovered: str
    """How far the rows get from No-Traj towards the ceiling of Endpoint-Traj; empty where that is undefined."""
    tables: tuple[GroupedTable[CeilingCell | None], ...]
    """The main table, and all figures; none where the state is `absent`."""


def ceilings_of(
    rows: Sequence[Ceiling], *, simulated: bool, reason: str = "", undertrained: frozenset[str] = frozenset()
) -> Ceilings:
    """Build the content of the page on ceilings.

    Args:
        rows: the table `ceilings`; empty for a recorded corpus, or where none were computed.
        undertrained: rows that do not count as trained, which the tables mark.
    """
    if not rows:
        if reason:
            why = (
                f"No exact ceiling for this layout of the simulated world: {reason}. The rows have no upper bound here."
            )
        elif simulated:
            why = "No ceiling was computed for this run: nothing here bounds the rows from above."
        else:
            needs = "it needs the process that generated them, which is known only in simulation"
            why = f"Recorded takes have no ceiling: {needs}."
        return Ceilings("absent", why, (), "", ())
    bounded = {row.metric for row in rows}
    metrics = tuple(metric for metric in with_ceiling(has_goal=False) if metric in bounded)
    tables = (
        ceiling_table("ceilings", "What can be known at most (simulated world only)", rows, KEY_METRICS, undertrained),
        ceiling_table(
            "ceilings-all", "Every row and metric against its ceiling", rows, metrics, undertrained, whole=True
        ),
    )
    above = [CeilingCell(row, "broken") for row in rows if state_of(row) == "broken"]
    broken = tuple(
        f"{row_name(cell.row.variant)}, {cell.row.metric} over all horizons: {cell.value}, ceiling {cell.ceiling}, "
        f"difference {cell.difference}"
        for cell in above
    )
    is_open = any(state_of(row) == "open" for row in rows if row.binding)
    warns = any(state_of(row) == "warn" for row in rows)  # figures that are not binding can only warn
    whole: Whole = "broken" if above else "open" if is_open else "warned" if warns else "kept"
    return Ceilings(whole, _headline(rows), broken, recovered(rows), tables)


def _headline(rows: Sequence[Ceiling]) -> str:
    """Count the figures within their ceiling, and those above it."""
    binding = [state_of(row) for row in rows if row.binding]
    others = [state_of(row) for row in rows if not row.binding]
    kept = sum(state in ("below", "level") for state in binding)
    after = "; without a goal A@1 and ASeq, too" if any(row.metric in AFTER_START for row in rows) else ""
    parts = [
        f"{kept} of {len(binding)} binding figures (M@1 and MSeq over all horizons{after}) are not above their ceiling "
        "by more than 3 standard errors"
    ]
    if "open" in binding:
        parts.append(f"{binding.count('open')} could not be judged ({TOO_FEW})")
    if "warn" in others:
        parts.append(f"{others.count('warn')} of the {len(others)} other figures are: a warning")
    return "; ".join(parts) + "."


def state_of(row: Ceiling) -> State:
    """Judge one figure; `above` was decided by the evaluation, by the rule of three standard errors."""
    if row.above:
        return "broken" if row.binding else "warn"
    if not math.isfinite(row.standard_error):
        return "open"
    return "below" if row.difference <= 0 else "level"


def ceiling_table(
    id_: str,
    title: str,
    figures: Sequence[Ceiling],
    metrics: Sequence[str],
    undertrained: frozenset[str],
    *,
    whole: bool = False,
) -> GroupedTable[CeilingCell | None]:
    """Group the figures by horizon, the plain mean first; per horizon only `INFORMATION`, unless `whole`.

    A cell is None where there is no figure.
    """

    def rows(group: Sequence[Ceiling]) -> list[TableRow[CeilingCell | None]]:
        by_cell = {(row.variant, row.metric): CeilingCell(row, state_of(row)) for row in group}
        shown = in_order({row.variant for row in group})
        return [
            TableRow(v, row_name(v), tuple(by_cell.get((v, metric)) for metric in metrics), v in undertrained)
            for v in shown
        ]

    shown = (row for row in figures if row.metric in metrics)
    shown = (row for row in shown if whole or row.horizon is None or row.variant in INFORMATION)
    return grouped(id_, title, metrics, shown, rows, means_first=True)


def recovered(rows: Sequence[Ceiling]) -> str:
    """Return how far each row gets from No-Traj to the ceiling of Endpoint-Traj, in M@1 over all horizons."""
    pooled = {row.variant: row for row in rows if row.horizon is None and row.metric == "M@1"}
    base, goal = pooled.get(REFERENCE), pooled.get(GOAL)
    if base is None or goal is None or goal.ceiling <= base.value:
        return ""
    way = goal.ceiling - base.value
    shares = [
        f"{row_name(variant)} {number(100 * (pooled[variant].value - base.value) / way)} %"
        for variant in in_order(pooled)
        if method(variant).ceiling == GOAL
    ]
    return (
        f"From the learned {row_name(REFERENCE)} ({number(base.value)}) to the ceiling of {row_name(GOAL)} "
        f"({number(goal.ceiling)}), in M@1 over all horizons, the rows with this ceiling get this far: "
        f"{', '.join(shares)}."
    )
