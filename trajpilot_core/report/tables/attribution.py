"""Where a gain comes from: one row of the tables against the rows that lack a part of what it has.

Source: docs/decisions/scorer.md; docs/decisions/metrics.md.
"""

from collections.abc import Mapping, Sequence

from schemas.results import Metric
from trajpilot_core.methods import METHODS
from trajpilot_core.report.tables.names import OPEN_METRICS, row_name
from trajpilot_core.report.tables.results import Group, ResultCell, Results, ResultTable, TableRow, group_title, place


def ablations() -> list[str]:
    """Return the rows without a part, after the row that they take it from."""
    return list(dict.fromkeys(id_ for one in METHODS if one.part_of for id_ in (one.part_of, one.id)))


def attribution_tables(results: Results) -> list[ResultTable]:
    """Return the tables of the block: the plain mean of the horizons, then the rest; without the rows an empty list."""
    made = []
    for one in METHODS:
        variant, name = one.id, one.name
        questions = {reference: meaning for reference, meaning in one.against.items() if meaning}
        title = f"{name} minus the rows that show where its gain comes from, paired over takes"
        for id_, plain in ((f"against-{variant}", True), (f"against-{variant}-horizons", False)):
            heading = title if plain else f"{name}: the same differences per horizon"
            made.append(against(id_, heading, results, variant, questions, plain=plain))
    return [table for table in made if table.groups]


def against(
    id_: str, title: str, results: Results, variant: str, questions: Mapping[str, str], *, plain: bool
) -> ResultTable:
    """Build a table with one row per reference: what `variant` has more than it; the plain mean, or all but it."""
    found = [
        m
        for m in results.metrics
        if m.variant == variant
        and m.reference in questions
        and m.metric in OPEN_METRICS
        and (m.pooling == "plain") == plain
    ]
    groups = []
    for where in sorted({place(m) for m in found}):
        inside = [m for m in found if place(m) == where]
        rows = [_row(reference, inside, results, questions) for reference in questions]
        held = tuple(row for row in rows if row.cells)
        groups.append(Group(group_title(inside[0]), inside[0].n_windows, inside[0].n_takes, held))
    return ResultTable(id_, title, OPEN_METRICS, tuple(groups))


def _row(reference: str, group: Sequence[Metric], results: Results, questions: Mapping[str, str]) -> TableRow:
    """Build the row of one reference; it is undertrained where either side is."""
    own = {m.metric: m for m in group if m.reference == reference}
    cells = tuple(ResultCell(own[name], is_best=False) for name in OPEN_METRICS if name in own)
    weak = bool({reference, group[0].variant} & results.undertrained)
    return TableRow(reference, f"minus {row_name(reference)}", reference, weak, cells, questions[reference])


def absent_rows(results: Results) -> str:
    """Name the rows that this run has no figures for; empty where it has all."""
    held = set(results.variants())
    missing = [one.name for one in METHODS if one.id not in held]
    return f"not in this run: {', '.join(missing)}" if missing and held else ""
