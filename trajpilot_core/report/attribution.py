"""Where a gain comes from: one row of the tables against the rows that lack a part of what it has.

Source: docs/decisions/scorer.md; docs/decisions/metrics.md.
"""

from collections.abc import Mapping, Sequence

from schemas.results import Metric
from trajpilot_core.report.names import OPEN_METRICS, ROWS, row_name
from trajpilot_core.report.tables import Cell, Group, Results, ResultTable, TableRow, group_title, place

SCORER = {
    "no_traj": "the whole gain",
    "endpoint_traj": "beyond what its own motion during Start and Goal tells",
    "scorer_permuted": "what it matters that a candidate carries its own motion",
    "scorer_no_labels": "what reading the candidates' labels adds",
    "scorer_no_motion": "what reading their motion, and the plans under it, adds",
    "knn_labels": "beyond a vote of the candidates' labels",
    "pool_mean": "beyond averaging all plans instead of choosing one",
}
"""Reference -> what the difference of the Scorer to it means."""
SCORER_PLUS = {
    "no_traj": "the whole gain",
    "endpoint_traj": "beyond what its own motion during Start and Goal tells",
    "scorer": "beyond choosing one candidate, as the paper does",
    "knn_labels": "beyond a vote of the candidates' labels",
    "pool_mean": "beyond weights that were not learned",
}
"""Reference -> what the difference of Scorer+ to it means: the five comparisons of its claim."""
ABLATIONS = ("scorer", "scorer_permuted", "scorer_no_labels", "scorer_no_motion")


def attribution_tables(results: Results) -> list[ResultTable]:
    """Return the tables of the block: the plain mean of the horizons, then the rest; without the rows an empty list."""
    made = []
    for variant, questions in (("scorer", SCORER), ("scorer_plus", SCORER_PLUS)):
        name = row_name(variant)
        title = f"{name} minus the rows that tell where its gain comes from, paired over takes"
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
        if m.variant == variant and m.reference in questions and m.metric in OPEN_METRICS
        and (m.pooling == "plain") == plain
    ]  # fmt: skip
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
    cells = tuple(Cell(own[name], is_best=False) for name in OPEN_METRICS if name in own)
    weak = bool({reference, group[0].variant} & results.undertrained)
    return TableRow(reference, f"minus {row_name(reference)}", reference, weak, cells, questions[reference])


def absent_rows(results: Results) -> str:
    """Name the rows of `names.ROWS` that this run has no figures for; empty where it has all."""
    held = set(results.variants())
    missing = [row.name for variant, row in ROWS.items() if variant not in held]
    return f"not in this run: {', '.join(missing)}" if missing and held else ""
