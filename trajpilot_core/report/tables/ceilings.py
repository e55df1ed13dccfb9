"""Every row next to the exact ceiling of what it sees; in a simulated world only.

Source of the ceilings: docs/decisions/ceiling.md. How they are shown: docs/decisions/report.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from schemas.results import Ceiling
from trajpilot_core.methods import in_order
from trajpilot_core.metrics import of_table, with_ceiling
from trajpilot_core.report.tables.table import DASH, TOO_FEW, Cell, Label, Table, grouped, number, row_label, row_name
from trajpilot_core.simworld.inference.visible import KINDS

INFORMATION = KINDS
"""Rows of the kinds of information: no motion, motion of the endpoints, all motion."""
AFTER_START = of_table("anticipation")
State = Literal["below", "level", "open", "warn", "broken"]
Whole = Literal["absent", "kept", "warned", "broken", "open"]
"""State of all figures together."""
WORDS: Mapping[State, str] = {"warn": " ABOVE: warns", "broken": " ABOVE: a leak"}
NOTE = (
    "Row / ceiling, difference (its standard error, clustered by take). The ceiling of a row is the score of exact "
    "inference on the process that made the world, given at least what the row sees, with the best decision for each "
    "metric. That of Endpoint-Traj also bounds every row with retrieved windows, because those contain no information "
    "about the middle of this window beyond its endpoints. Only M@1 and MSeq over all horizons are binding; any other "
    "figure above its ceiling is a warning. ABOVE: by more than 3 standard errors."
)


def text_of(row: Ceiling) -> str:
    """Return a row's value, its ceiling, and the difference with its standard error, as printed."""
    error = number(row.standard_error) if math.isfinite(row.standard_error) else TOO_FEW
    difference = f"{number(row.difference, is_signed=True)} ({error})"
    return f"{number(row.value)} / {number(row.ceiling)}, {difference}{WORDS.get(state_of(row), '')}"


@dataclass(frozen=True)
class Ceilings:
    """The content of the page on ceilings."""

    state: Whole
    headline: str
    broken: tuple[str, ...]
    """One sentence per binding figure above its ceiling."""
    tables: tuple[Table, ...]
    """All figures; none where the state is `absent`."""


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
        return Ceilings("absent", why, (), ())
    bounded = {row.metric for row in rows}
    metrics = tuple(metric for metric in with_ceiling(has_goal=False) if metric in bounded)
    table = ceiling_table(rows, metrics, undertrained)
    above = [row for row in rows if state_of(row) == "broken"]
    broken = tuple(f"{row_name(row.variant)}, {row.metric} over all horizons: {text_of(row)}" for row in above)
    is_open = any(state_of(row) == "open" for row in rows if row.binding)
    warns = any(state_of(row) == "warn" for row in rows)  # figures that are not binding can only warn
    whole: Whole = "broken" if above else "open" if is_open else "warned" if warns else "kept"
    return Ceilings(whole, _headline(rows), broken, (table,))


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


def ceiling_table(rows: Sequence[Ceiling], metrics: Sequence[str], undertrained: frozenset[str]) -> Table:
    """Group the figures by horizon, the plain mean first."""

    def cell(row: Ceiling | None) -> Cell:
        return DASH if row is None else Label(text_of(row), style=f"c-{state_of(row)}" if row.above else "")

    def lines(group: Sequence[Ceiling]) -> list[tuple[Cell, ...]]:
        by_cell = {(row.variant, row.metric): row for row in group}
        return [
            (row_label(v, undertrained), *(cell(by_cell.get((v, metric))) for metric in metrics))
            for v in in_order({row.variant for row in group})
        ]

    shown = (row for row in rows if row.metric in metrics)
    title = "What can be known at most (simulated world only)"
    return replace(grouped("ceilings", title, metrics, shown, lines, means_first=True), note=NOTE)
