"""Every row next to the exact ceiling of what it sees; in a simulated world only.

Source of the ceilings: docs/decisions/ceiling.md. How they are shown: docs/decisions/report.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from schemas.results import Ceiling
from trajpilot_core.methods import in_order, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.metrics import of_table, with_ceiling
from trajpilot_core.report.tables.table import DASH, TOO_FEW, Cell, Label, Table, grouped, number, row_label, row_name
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


def texts_of(row: Ceiling) -> tuple[str, str, str, str]:
    """Return a row's value, its ceiling, the difference with its standard error, and the verdict, as printed."""
    error = number(row.standard_error) if math.isfinite(row.standard_error) else DASH
    difference = f"{number(row.difference, is_signed=True)} ({error})"
    return number(row.value), number(row.ceiling), difference, WORDS[state_of(row)]


@dataclass(frozen=True)
class Ceilings:
    """The content of the page on ceilings."""

    state: Whole
    headline: str
    broken: tuple[str, ...]
    """One sentence per binding figure above its ceiling."""
    recovered: str
    """How far the rows get from No-Traj towards the ceiling of Endpoint-Traj; empty where that is undefined."""
    tables: tuple[Table, ...]
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
            "ceilings-all",
            "Every row and metric against its ceiling: row / ceiling, difference (s.e.)",
            rows,
            metrics,
            undertrained,
            whole=True,
        ),
    )
    above = [(row, texts_of(row)) for row in rows if state_of(row) == "broken"]
    broken = tuple(
        f"{row_name(row.variant)}, {row.metric} over all horizons: {value}, ceiling {ceiling}, difference {difference}"
        for row, (value, ceiling, difference, _) in above
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
) -> Table:
    """Group the figures by horizon, the plain mean first.

    Args:
        whole: everything, a figure in one cell; else per horizon only `INFORMATION`, and four cells for each figure.
    """

    def cells(row: Ceiling | None) -> tuple[Cell, ...]:
        if row is None:
            return (DASH,) * (1 if whole else 4)
        value, ceiling, difference, words = texts_of(row)
        style = f"c-{state_of(row)}"
        if whole:
            return (Label(f"{value} / {ceiling}, {difference}", style=style if row.above else ""),)
        return value, ceiling, difference, Label(words, style=style)

    def rows(group: Sequence[Ceiling]) -> list[tuple[Cell, ...]]:
        by_cell = {(row.variant, row.metric): row for row in group}
        return [
            (row_label(v, undertrained), *(cell for metric in metrics for cell in cells(by_cell.get((v, metric)))))
            for v in in_order({row.variant for row in group})
        ]

    shown = (row for row in figures if row.metric in metrics)
    shown = (row for row in shown if whole or row.horizon is None or row.variant in INFORMATION)
    parts = () if whole else ("row", "ceiling", "difference (s.e.)", "verdict")
    over = () if whole else (("", 1), *((metric, len(parts)) for metric in metrics))
    return grouped(id_, title, metrics if whole else parts * len(metrics), shown, rows, over, means_first=True)


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
