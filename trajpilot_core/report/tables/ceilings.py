"""Every row next to the exact ceiling of what it sees; in a simulated world only.

Source of the ceilings: docs/decisions/ceiling.md. How they are shown: docs/decisions/report.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from schemas.results import Ceiling
from trajpilot_core.methods import in_order
from trajpilot_core.metrics import with_ceiling
from trajpilot_core.report.tables.table import DASH, TOO_FEW, Cell, Label, Table, grouped, number, row_label, row_name
from trajpilot_core.simworld.inference.visible import KINDS

INFORMATION = KINDS
"""Rows of the kinds of information: no motion, motion of the endpoints, all motion."""
State = Literal["kept", "warn", "broken"]
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


def absence(*, simulated: bool, reason: str = "") -> str:
    """Return why a run has no ceilings; `reason`: that of the layout of its simulated world."""
    if reason:
        return f"No exact ceiling for this layout of the simulated world: {reason}. The rows have no upper bound here."
    if simulated:
        return "No ceiling was computed for this run: nothing here bounds the rows from above."
    return "Recorded takes have no ceiling: it needs the process that generated them, known only in simulation."


def broken_ceilings(rows: Sequence[Ceiling]) -> list[str]:
    """Return a sentence for each binding figure above its ceiling."""
    above = [row for row in rows if state_of(row) == "broken"]
    return [f"{row_name(row.variant)}, {row.metric} over all horizons: {text_of(row)}" for row in above]


def state_of(row: Ceiling) -> State:
    """Return the state of one figure; the evaluation has decided `above`, by the rule of three standard errors."""
    return "kept" if not row.above else "broken" if row.binding else "warn"


def ceiling_tables(rows: Sequence[Ceiling], undertrained: frozenset[str] = frozenset()) -> list[Table]:
    """Group the figures by horizon, the plain mean first; rows that do not count as trained are marked."""
    bounded = {row.metric for row in rows}
    metrics = tuple(metric for metric in with_ceiling(has_goal=False) if metric in bounded)

    def cell(row: Ceiling | None) -> Cell:
        return DASH if row is None else Label(text_of(row), style=f"c-{state_of(row)}" if row.above else "")

    def lines(group: Sequence[Ceiling]) -> list[tuple[Cell, ...]]:
        by_cell = {(row.variant, row.metric): row for row in group}
        return [
            (row_label(v, undertrained), *(cell(by_cell.get((v, metric))) for metric in metrics))
            for v in in_order({row.variant for row in group})
        ]

    title = "What can be known at most (simulated world only)"
    table = replace(grouped("ceilings", title, metrics, rows, lines, means_first=True), note=NOTE)
    return [table] if rows else []
