"""Section of the claims page: every row of every planned world against the exact ceiling of what it may see."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from schemas.claims import BASE, SWEEP_ROWS, WORLDS, ClaimsConfig, curve_worlds, full_worlds, sweep_worlds, world_seeds
from schemas.results import Ceiling
from trajpilot_core.claims.aims import PLUS, RIVALS
from trajpilot_core.claims.markdown import CEILING, name, number, section, table, verdict
from trajpilot_core.claims.page_takes import ROWS as CURVE_ROWS
from trajpilot_core.claims.rules import CLAIMS
from trajpilot_core.claims.scorer_page import INPUT_ROWS
from trajpilot_core.claims.tables import Evidence, Placed
from trajpilot_core.evaluation.ceiling import BINDING, ERRORS, ceiling_of
from trajpilot_core.report.names import in_order

TEXT = """\
Exact inference on the world's own generative model, given what a row may see or more. A row above its ceiling by
more than three standard errors (paired by take, averaged over seeds, plain mean over H) is proof of a leak. That
binds M@1 and MSeq of every row that was scored or that a statement needs, in every planned seed: a cell that lacks a
seed is not run.
"""
OTHERS_TEXT = """\
The other metrics, and every metric at a single H, seed by seed, do not bind: among hundreds of cells a few may lie
above by chance. All that lie above by more than three standard errors are listed.
"""


class Bound(NamedTuple):
    """One row against its ceiling in one world, averaged over the seeds that are there; not a number without any."""

    world: str
    row: str
    metric: str
    value: float
    ceiling: float
    difference: float
    error: float
    n_takes: int
    n_seeds: int
    n_planned: int

    def verdict(self) -> str:
        """Return `holds` where the row lies below its ceiling by the rule, in all planned seeds and finite figures."""
        is_known = math.isfinite(self.error) and math.isfinite(self.difference)
        if is_known and self.difference > ERRORS * self.error:
            return "fails"
        return "holds" if is_known and self.n_seeds == self.n_planned else "not run"


def needed_rows(evidence: Evidence, world: str, cfg: ClaimsConfig) -> list[str]:
    """Return the rows of a world that have a ceiling: those that some seed has, and those that a statement needs."""
    rows = {
        row
        for claim in CLAIMS
        for statement in claim.statements
        if world in (statement.world, statement.against)
        for row in (statement.row, statement.reference)
    }
    rows |= {PLUS, *RIVALS, *INPUT_ROWS} if world == BASE else set()
    rows |= set(SWEEP_ROWS) if world in sweep_worlds(cfg) else set()
    rows |= set(CURVE_ROWS) if world in curve_worlds(cfg) else set()
    rows |= {row for scores in evidence.scores.get(world, {}).values() for row in scores.rows}
    return in_order({row for row in rows if row and not row.startswith(CEILING) and ceiling_of(row) is not None})


def ceiling_bounds(evidence: Evidence, cfg: ClaimsConfig) -> list[Bound]:
    """Average the binding cells over the seeds of each world; standard errors of independent worlds add in squares."""
    cells: dict[tuple[str, str, str], dict[int, Ceiling]] = {}
    for place, ceiling in evidence.ceilings:
        if ceiling.horizon is None and ceiling.metric in BINDING:
            cells.setdefault((place.world, ceiling.variant, ceiling.metric), {})[place.seed] = ceiling
    worlds = dict.fromkeys((*full_worlds(cfg), *sweep_worlds(cfg)))
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
    if not n:
        return Bound(world, row, metric, math.nan, math.nan, math.nan, math.nan, 0, 0, len(planned))
    value, ceiling = sum(c.value for c in held) / n, sum(c.ceiling for c in held) / n
    error = math.sqrt(sum(c.standard_error**2 for c in held)) / n
    return Bound(
        world, row, metric, value, ceiling, value - ceiling, error, sum(c.n_takes for c in held), n, len(planned)
    )


def ceilings_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return every binding cell of the worlds of the claims, those of others that do not hold, and the cells above."""
    bounds = ceiling_bounds(evidence, cfg)
    held = {place.world for place, _ in evidence.ceilings}
    absent = list(dict.fromkeys(bound.world for bound in bounds if bound.world not in held))
    shown = [b for b in bounds if b.world in held and (b.world in WORLDS or b.verdict() != "holds")]
    lines = [
        [b.world, name(b.row), b.metric, number(b.value), number(b.ceiling), number(b.difference, signed=True),
         number(b.error, 2), f"{b.n_seeds} of {b.n_planned}", str(b.n_takes), verdict(b.verdict())]
        for b in shown
    ]  # fmt: skip
    figures = ["row, %", "ceiling, %", "difference", "standard error"]
    header = ["world", "row", "metric", *figures, "seeds", "takes", "below"]
    return section("Ceilings", TEXT, _summary(bounds, absent), table(header, lines), *_others(evidence))


def _summary(bounds: Sequence[Bound], absent: Sequence[str]) -> str:
    """Put the verdict over all cells into words; a cell that is not there speaks against it."""
    found = [bound.verdict() for bound in bounds]
    told = next((worst for worst in ("fails", "not run") if worst in found), "holds")
    counts = ", ".join(f"{found.count(word)} {said}" for word, said in _COUNTED)
    missing = f" No ceilings of {', '.join(f'`{world}`' for world in absent)}." if absent else ""
    left_out = f" Those of the sweep and of the learning curve are listed where they do not hold.{missing}"
    return f"Every row lies below its ceiling: {verdict(told)} ({len(found)} cells: {counts}).{left_out}"


_COUNTED = (("holds", "hold"), ("fails", "fail"), ("not run", "not run"))


def _others(evidence: Evidence) -> list[str]:
    """Return the cells that do not bind and lie above their ceiling."""
    others = [(place, c) for place, c in evidence.ceilings if not c.binding]
    above = [(place, c) for place, c in others if c.above]
    counted = f"{len(others)} cells, {len(above)} above." if others else "Not run."
    header = ["world", "row", "metric", "H", "row, %", "ceiling, %", "difference", "standard error", "takes"]
    shown = [table(header, [_other_line(place, c) for place, c in above])] if above else []
    return ["### Cells that do not bind\n", OTHERS_TEXT, counted, *shown]


def _other_line(place: Placed, c: Ceiling) -> list[str]:
    """Return one cell that lies above its ceiling."""
    return [
        f"{place.world} {place.seed}", name(c.variant), c.metric, "mean" if c.horizon is None else str(c.horizon),
        number(c.value), number(c.ceiling), number(c.difference, signed=True), number(c.standard_error, 2),
        str(c.n_takes),
    ]  # fmt: skip
