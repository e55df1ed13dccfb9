"""Sources of a gain: one row of the tables against the rows that lack a part of it.

Source: docs/decisions/scorer.md; docs/decisions/metrics.md.
"""

from collections.abc import Sequence

from schemas.results import Metric
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import Method
from trajpilot_core.report.tables.groups import GroupedTable, TableRow, grouped
from trajpilot_core.report.tables.names import open_metrics, row_name
from trajpilot_core.report.tables.results import ResultCell, Results
from trajpilot_core.report.tables.table import NOTHING


def ablations() -> dict[str, list[str]]:
    """Return row -> its ablations."""
    whole = dict.fromkeys(one.part_of for one in METHODS if one.part_of)
    return {id_: [one.id for one in METHODS if one.part_of == id_] for id_ in whole if id_}


def attribution_tables(results: Results) -> list[GroupedTable[ResultCell]]:
    """Return the tables of differences: the plain mean of the horizons, then the rest; empty without the rows."""
    made = []
    for one in METHODS:
        title = f"{one.name} minus the rows that show where its gain comes from, paired over takes"
        made += [
            against(f"against-{one.id}", title, results, one, plain=True),
            against(
                f"against-{one.id}-horizons", f"{one.name}: the same differences per horizon", results, one, plain=False
            ),
        ]
    return [table for table in made if table.groups]


def against(id_: str, title: str, results: Results, one: Method, *, plain: bool) -> GroupedTable[ResultCell]:
    """Build a table of differences with one row per reference: the plain mean, or everything else.

    A difference is undertrained if either side is.
    """
    questions = {reference: meaning for reference, meaning in one.against.items() if meaning}

    def rows(group: Sequence[Metric]) -> list[TableRow[ResultCell]]:
        by_cell = {(m.reference, m.metric): m for m in group}
        return [
            TableRow(
                reference,
                f"minus {row_name(reference)}",
                tuple(ResultCell(m, is_best=False) for name in open_metrics() if (m := by_cell.get((reference, name)))),
                bool({reference, one.id} & results.undertrained),
                meaning,
            )
            for reference, meaning in questions.items()
        ]

    found = (
        m
        for m in results.metrics
        if m.variant == one.id
        and m.reference in questions
        and m.metric in open_metrics()
        and (m.pooling == "plain") == plain
    )
    return grouped(id_, title, open_metrics(), found, rows)


def absent_rows(results: Results) -> str:
    """Return the names of the rows without figures in this run; empty where it has all.

    Rows without a goal are listed only in runs that anticipate.
    """
    scored = set(results.variants())
    anticipates = any(one.anticipates for one in METHODS if one.id in scored)
    missing = [one.name for one in METHODS if one.id not in scored and (anticipates or not one.anticipates)]
    return f"{NOTHING}: {'; '.join(missing)}" if missing and scored else ""
