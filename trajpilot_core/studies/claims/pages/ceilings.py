"""Every row of every planned world against the exact ceiling of what it may see."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from schemas.claims import BASE, CURVE_ROWS, ClaimsConfig, curve_worlds, full_worlds, world_seeds
from schemas.planners import PLANNERS
from schemas.results import Ceiling
from trajpilot_core.evaluation.ceiling import BINDING, ERRORS
from trajpilot_core.methods import METHODS, in_order, with_role
from trajpilot_core.report.tables.table import Table, number
from trajpilot_core.studies.claims.evidence.readings import name
from trajpilot_core.studies.claims.evidence.tables import Evidence, Origin
from trajpilot_core.studies.claims.pages.scorer import input_rows
from trajpilot_core.studies.claims.verdicts.families import RIVALS
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS

NOTE = (
    "Exact inference on the world's own generative model, given what a row may see or more. A row above its ceiling by "
    "more than three standard errors, paired by take and averaged over seeds, is proof of a leak; that binds M@1 and "
    f"MSeq, plain mean over H. All cells of {BASE} are listed, of other worlds those that do not hold."
)
WORST = ("fails", "not run")


class Bound(NamedTuple):
    """One row against its ceiling in one world, averaged over the seeds that are there; not a number without any."""

    world: str
    row: str
    metric: str
    value: float
    ceiling: float
    error: float
    n_takes: int
    n_seeds: int
    n_planned: int

    def verdict(self) -> str:
        """Return `holds` where the row lies below its ceiling by the rule, in all planned seeds and finite figures."""
        difference = self.value - self.ceiling
        is_known = math.isfinite(self.error) and math.isfinite(difference)
        if is_known and difference > ERRORS * self.error:
            return "fails"
        return "holds" if is_known and self.n_seeds == self.n_planned else "not run"


def needed_rows(evidence: Evidence, world: str, cfg: ClaimsConfig) -> list[str]:
    """Return the rows of a world that have a ceiling: those that some seed has, and those that a statement needs.

    The planners are main rows of worlds of their own (docs/comparison.md); the recipe of the claims trains none.
    """
    rows = {
        row
        for claim in CLAIMS
        for statement in claim.statements
        if world in (statement.world, statement.against)
        for row in (statement.row, statement.reference)
    }
    rows |= {*with_role("main"), *RIVALS, *input_rows()} - {*PLANNERS} if world == BASE else set()
    rows |= set(CURVE_ROWS) if world in curve_worlds(cfg) else set()
    rows |= {row for scores in evidence.scores.get(world, {}).values() for row in scores.rows}
    bounded = {one.id for one in METHODS if one.ceiling is not None and one.predictions is None}
    return in_order(rows & bounded)


def ceiling_bounds(evidence: Evidence, cfg: ClaimsConfig) -> list[Bound]:
    """Average the binding cells over the seeds of each world; standard errors of independent worlds add in squares."""
    cells: dict[tuple[str, str, str], dict[int, Ceiling]] = {}
    for origin, ceiling in evidence.ceilings:
        if ceiling.horizon is None and ceiling.metric in BINDING:
            cells.setdefault((origin.world, ceiling.variant, ceiling.metric), {})[origin.seed] = ceiling
    worlds = (*full_worlds(), *curve_worlds(cfg))
    return [
        _bound(world, row, metric, cells.get((world, row, metric), {}), world_seeds(cfg, world))
        for world in worlds
        for row in needed_rows(evidence, world, cfg)
        for metric in BINDING
    ]


def _bound(world: str, row: str, metric: str, cells: dict[int, Ceiling], planned: Sequence[int]) -> Bound:
    """Average one cell over its seeds."""
    held = [cells[seed] for seed in planned if seed in cells]
    n = len(held)
    value, ceiling, error = math.nan, math.nan, math.nan
    if n:
        value, ceiling = sum(c.value for c in held) / n, sum(c.ceiling for c in held) / n
        error = math.sqrt(sum(c.standard_error**2 for c in held)) / n
    return Bound(world, row, metric, value, ceiling, error, sum(c.n_takes for c in held), n, len(planned))


def ceilings_verdict(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the verdict over all cells, with their counts; a cell that is not there speaks against it."""
    bounds = ceiling_bounds(evidence, cfg)
    found = [bound.verdict() for bound in bounds]
    held = {origin.world for origin, _ in evidence.ceilings}
    absent = dict.fromkeys(bound.world for bound in bounds if bound.world not in held)
    verdict = next((worst for worst in WORST if worst in found), "holds")
    counts = ", ".join(f"{found.count(word)} {text}" for word, text in _COUNTED)
    missing = f"; no ceilings of {len(absent)} worlds" if absent else ""
    return f"Every row lies below its ceiling: {verdict} ({len(found)} cells: {counts}{missing})"


_COUNTED = (("holds", "hold"), ("fails", "fail"), ("not run", "not run"))


def ceilings_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return every binding cell of `base`, those of others that do not hold, and what lies above."""
    held = {origin.world for origin, _ in evidence.ceilings}
    shown = [b for b in ceiling_bounds(evidence, cfg) if b.world in held]
    shown = [b for b in shown if b.world == BASE or b.verdict() != "holds"]
    rows = tuple((*_cells(b), f"{b.n_seeds} of {b.n_planned}", str(b.n_takes), b.verdict()) for b in shown)
    figures = ("row, %", "ceiling, %", "difference", "standard error")
    binding = Table(
        "Rows against their ceilings",
        ("world", "row", "metric", *figures, "seeds", "takes", "below"),
        rows,
        f"{ceilings_verdict(evidence, cfg)}. {NOTE}",
    )
    others = [(origin, c) for origin, c in evidence.ceilings if not c.binding]
    above = tuple(_cell_above(origin, c) for origin, c in others if c.above)
    note = f"{len(others)} cells, {len(above)} above; among so many a few may be by chance." if others else "Not run."
    header = ("world", "row", "metric", "H", *figures, "takes")
    return binding, Table("Cells above their ceiling that do not bind", header, above, note)


def _cells(b: Bound) -> tuple[str, ...]:
    return (b.world, name(b.row), b.metric, *_figures(b.value, b.ceiling, b.error))


def _cell_above(origin: Origin, c: Ceiling) -> tuple[str, ...]:
    at = "mean" if c.horizon is None else str(c.horizon)
    where = (f"{origin.world} {origin.seed}", name(c.variant), c.metric, at)
    return (*where, *_figures(c.value, c.ceiling, c.standard_error), str(c.n_takes))


def _figures(value: float, ceiling: float, error: float) -> tuple[str, ...]:
    return number(value), number(ceiling), number(value - ceiling, is_signed=True), number(error, 2)
