"""Figures of the claims as cells of tables: levels and differences with their intervals, and ranges over seeds."""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from schemas.claims import ClaimsConfig
from trajpilot_core.methods import in_order, with_role
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.table import NOTHING, Cell, Value, number
from trajpilot_core.studies.claims.evidence.contrasts import contrast
from trajpilot_core.studies.claims.evidence.statistics import Equivalence, Estimate, at_each, mean_of
from trajpilot_core.studies.claims.evidence.tables import CEILING, Evidence

R = TypeVar("R")
FIGURES_KEPT = 2048
"""Figures that stay in memory: pages print many of them several times."""
METRIC_NAMES = {"m1": "M@1", "m5": "M@5", "mseq": "MSeq", "f1": "F@1", "f5": "F@5", "fseq": "FSeq"}
SHOWN_METRICS = ("m1", "mseq")
EXTRA_NAMES = {"scorer_plus": "Scorer+"}
"""Names of rows that are printed otherwise than in the report."""


def name(row: str) -> str:
    """Return the printed name of a row or of the ceiling of one; its id where no such row is declared."""
    if row.startswith(CEILING):
        return f"ceiling of {name(row.removeprefix(CEILING))}"
    return EXTRA_NAMES.get(row, row_name(row))


def horizons(cfg: ClaimsConfig) -> list[str]:
    """Return the headings of the horizons."""
    return [f"H={horizon}" for horizon in cfg.horizons]


@lru_cache(maxsize=FIGURES_KEPT)
def reading(
    evidence: Evidence, world: str, row: str, reference: str | None, metric: str, cfg: ClaimsConfig
) -> Estimate | None:
    """Return the plain mean over H of a row or a difference; None where it was not run."""
    return mean_of(contrast(evidence, world, row, reference, metric, cfg).profile, cfg)


@lru_cache(maxsize=FIGURES_KEPT)
def per_horizon(
    evidence: Evidence, world: str, row: str, reference: str | None, metric: str, cfg: ClaimsConfig
) -> tuple[Estimate, ...]:
    """Return a row or a difference at each H; nothing where it was not run."""
    return at_each(contrast(evidence, world, row, reference, metric, cfg).profile, cfg)


def rows_in_order(evidence: Evidence, world: str) -> list[str]:
    """Return the rows that some seed of a world has, in the order of the report's tables, ceilings last."""
    held = {row for scores in evidence.scores.get(world, {}).values() for row in scores.rows}
    bounds = in_order({row.removeprefix(CEILING) for row in held if row.startswith(CEILING)})
    return [*in_order({row for row in held if not row.startswith(CEILING)}), *(CEILING + row for row in bounds)]


def rows_of(evidence: Evidence, world: str) -> set[str]:
    """Return the rows of a world that some seed has, without ceilings and floors, which are no method."""
    held = {row for scores in evidence.scores.get(world, {}).values() for row in scores.rows}
    return {row for row in held if not row.startswith(CEILING) and row not in with_role("floor")}


def takes_of(evidence: Evidence, world: str) -> int:
    """Return the number of test takes of a world over its seeds."""
    return sum(len(scores.takes) for scores in evidence.scores.get(world, {}).values())


def rate(figure: Estimate | None, digits: int = 1) -> Cell:
    """Return a level with its interval."""
    return NOTHING if figure is None else Value(figure.value, figure.low, figure.high, digits)


def change(figure: Estimate | Equivalence | None, digits: int = 1) -> Cell:
    """Return a difference with its interval, signed."""
    return NOTHING if figure is None else Value(figure.value, figure.low, figure.high, digits, True)


def seeds(figure: Estimate | Equivalence | None, digits: int = 1, is_signed: bool = True) -> str:
    """Print the value of every seed, rising."""
    return "" if figure is None else ", ".join(number(value, digits, is_signed) for _, value in figure.per_seed)


def takes(figure: Estimate | Equivalence | None) -> str:
    """Print the takes behind a figure."""
    return str(figure.n_takes) if figure else ""


def spread(values: Sequence[float], planned: int, digits: int = 1, is_signed: bool = False) -> str:
    """Print the mean of a value per seed with its range over the seeds, and how many seeds it lacks.

    Args:
        values: one per seed that is there.
        planned: seeds that there should be.
        digits: digits after the point.
        is_signed: print a plus sign.
    """
    if not values:
        return NOTHING
    ends = f"{number(min(values), digits, is_signed)} to {number(max(values), digits, is_signed)}"
    lacks = "" if len(values) == planned else f"; {len(values)} of {planned} seeds"
    return f"{number(sum(values) / len(values), digits, is_signed)} ({ends}{lacks})"


def spreads(
    rows: Iterable[R], columns: Sequence[tuple[Callable[[R], float], int, bool]], planned: int
) -> tuple[str, ...]:
    """Print several quantities of rows, one row per seed: (quantity, digits, is signed) each."""
    held = list(rows)
    return tuple(spread([of(row) for row in held], planned, digits, is_signed) for of, digits, is_signed in columns)
