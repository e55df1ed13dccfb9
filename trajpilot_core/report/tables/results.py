"""The tables of results, and the sources of a gain.

Source: docs/decisions/metrics.md; docs/decisions/scorer.md.
"""

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from schemas.results import Judgement, Metric
from trajpilot_core.evaluation.trained_rows import FLOORS, undertrained_rows
from trajpilot_core.methods import METHODS, in_order, method, with_role
from trajpilot_core.methods.base import REFERENCE, Method
from trajpilot_core.metrics import METRICS, of_table
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value, grouped, number, row_label, row_name

MEANS = ("plain", "sample")


def cell_of(m: Metric, *, is_best: bool = False) -> Value:
    """Return one figure of the evaluation as a cell; a difference carries its sign."""
    return Value(m.value, m.low, m.high, is_signed=m.reference is not None, is_best=is_best, metric=m)


@dataclass(frozen=True)
class Results:
    """The metrics averaged over seeds with intervals over takes, and the rows that do not count as trained."""

    metrics: tuple[Metric, ...]
    undertrained: frozenset[str]

    @functools.cached_property
    def floors(self) -> Mapping[tuple[bool, int | None, str, str], list[float]]:
        """Values of the floors by (no goal is given, horizon, pooling, metric)."""
        values: dict[tuple[bool, int | None, str, str], list[float]] = {}
        for m in self.metrics:
            if m.reference is None and m.variant in FLOORS:
                place = (method(m.variant).anticipates, m.horizon, m.pooling, m.metric)
                values.setdefault(place, []).append(m.value)
        return values

    def find(self, variants: set[str], reference: str | None) -> list[Metric]:
        """Return the rows of some variants against one reference."""
        return [m for m in self.metrics if m.variant in variants and m.reference == reference]

    def variants(self) -> list[str]:
        """Return the variants that were scored, in the order of the tables."""
        return in_order({m.variant for m in self.metrics if m.reference is None})

    def get(self, variant: str, reference: str | None, horizon: int | str, metric: str) -> Metric | None:
        """Return one row by its horizon or pooling, or None."""
        for m in self.metrics:
            at = m.pooling if m.horizon is None else m.horizon
            if (m.variant, m.reference, at, m.metric) == (variant, reference, horizon, metric):
                return m
        return None


def results_of(metrics: Sequence[Metric], judgements: Sequence[Judgement]) -> Results:
    """Select the metrics that are printed, and the rows that do not count as trained."""
    undertrained = undertrained_rows(judgements, {row.id: row.models for row in METHODS})
    return Results(tuple(m for m in metrics if m.seed is None), undertrained)


class TableSpec(NamedTuple):
    """A table of some rows and metrics."""

    id: str
    title: str
    rows: Sequence[str]
    metrics: Sequence[str]
    """Its columns."""
    poolings: Collection[str] = ("none", "plain", "sample")
    """Which figures: `none` per horizon, `plain` and `sample` over the horizons."""
    reference: str | None = None
    """Of paired differences; None: the values themselves."""


def filled_tables(results: Results, specs: Iterable[TableSpec]) -> list[Table]:
    """Return the tables that have figures; rows and groups without numbers are left out."""
    return [table for spec in specs if (table := build_table(results, spec)).groups]


def build_table(results: Results, spec: TableSpec) -> Table:
    """Build one table."""

    def rows(group: Sequence[Metric]) -> list[tuple[Cell, ...]]:
        by_cell = {(m.variant, m.metric): cell_of(m, is_best=_is_best(m, group, results)) for m in group}
        return [
            (row_label(v, results.undertrained), *(by_cell.get((v, name), "") for name in spec.metrics))
            for v in in_order({m.variant for m in group})
        ]

    rivals = results.find(set(spec.rows), spec.reference)
    chosen = (m for m in rivals if m.metric in spec.metrics and m.pooling in spec.poolings)
    return grouped(spec.id, spec.title, spec.metrics, chosen, rows)


def _is_best(m: Metric, group: Sequence[Metric], results: Results) -> bool:
    """Return whether a value is the single best of its column among the rows that do not see the truth."""
    if m.reference is not None or m.variant in {*results.undertrained, *FLOORS} or method(m.variant).uses_the_truth:
        return False
    column = [o for o in group if o.metric == m.metric and not method(o.variant).uses_the_truth and o is not m]
    trained = [o.value for o in column if o.variant not in {*results.undertrained, *FLOORS}]
    floors = results.floors.get((method(m.variant).anticipates, m.horizon, m.pooling, m.metric), [])
    return bool(column) and is_single_best(m.value, [*trained, *floors], METRICS[m.metric].higher_is_better)


def is_single_best(value: float, others: Sequence[float], higher: bool, digits: int = 1) -> bool:
    """Return whether a value is better than all others as printed; of values that print alike none is the best.

    `others` are those of the other trained rows and of the floors. Where `higher` is better, zero is never the best.
    """
    printed = number(value, digits)
    if higher and printed == number(0.0, digits):
        return False
    return all((value > other) == higher and number(other, digits) != printed for other in others)


def all_tables(results: Results) -> list[Table]:
    """Return the tables of the report, in reading order, rows without a goal aside; empty ones are left out."""
    variants = [variant for variant in results.variants() if not method(variant).anticipates]
    main, parts, columns = with_role("main"), with_role("ablation"), of_table("open")
    others = [variant for variant in variants if variant not in main]
    against = [variant for variant in variants if variant != REFERENCE]
    whole = [variant for variant in variants if variant not in parts]
    base, each = row_name(REFERENCE), ("none",)
    # differences with a meaning are in the tables of attribution
    plain = {other for row in METHODS for other, meaning in row.against.items() if not meaning}
    specs = [
        TableSpec("overview", "All rows but ablations over all horizons", whole, columns, MEANS),
        TableSpec("gain", f"Difference to {base}, paired over takes", whole, columns, MEANS, REFERENCE),
        TableSpec("ablations", "Ablations over all horizons", parts, columns, MEANS),
        TableSpec(
            "gain-ablations", f"Ablations: difference to {base}, paired over takes", parts, columns, MEANS, REFERENCE
        ),
        TableSpec("horizons", "The main rows per horizon", main, columns, each),
        TableSpec(
            "gain-horizons", f"Difference to {base} per horizon, paired over takes", against, columns, each, REFERENCE
        ),
        TableSpec("controls", "Ablations and controls per horizon", others, columns, each),
        TableSpec("sequences", "Decoded sequences", variants, of_table("sequence")),
    ]
    for row in in_order(plain - {REFERENCE}):
        title = f"Difference to {row_name(row)}, paired over takes"
        specs.append(TableSpec(f"gain-{row}", title, variants, columns, reference=row))
    return filled_tables(results, specs)


def attribution_tables(results: Results) -> list[Table]:
    """Return the tables of differences that show where gains come from; empty without the rows."""
    return [table for row in METHODS if (table := against(results, row)).groups]


def against(results: Results, row: Method) -> Table:
    """Build a table of differences, mean of the horizons, with one row per reference.

    A difference is undertrained if either side is.
    """
    questions = {reference: meaning for reference, meaning in row.against.items() if meaning}
    columns = of_table("open")

    def rows(group: Sequence[Metric]) -> list[tuple[Cell, ...]]:
        by_cell = {(m.reference, m.metric): cell_of(m) for m in group}
        weak = questions if row.id in results.undertrained else results.undertrained
        return [
            (
                row_label(reference, weak, f"minus {row_name(reference)}", meaning),
                *(by_cell.get((reference, name), "") for name in columns),
            )
            for reference, meaning in questions.items()
        ]

    differences = (
        m
        for m in results.metrics
        if (m.variant, m.pooling) == (row.id, "plain") and m.reference in questions and m.metric in columns
    )
    title = f"{row.name} minus the rows that show where its gain comes from, paired over takes"
    return grouped(f"against-{row.id}", title, columns, differences, rows)


def absent_rows(results: Results) -> list[str]:
    """Return a line with the names of the rows without figures in this run; none where it has all.

    Rows without a goal are listed only in runs that anticipate.
    """
    scored = set(results.variants())
    anticipates = any(row.anticipates for row in METHODS if row.id in scored)
    missing = [row.name for row in METHODS if row.id not in scored and (anticipates or not row.anticipates)]
    return [f"{NOTHING}: {'; '.join(missing)}"] if missing and scored else []


OVERALL = ("SR", "Mid mAcc", "mIoU")
"""Columns of the means over the horizons."""
FULL = (*OVERALL, "ED")
"""Columns of each horizon."""
PANEL = ("M@1", "M@5", "MSeq")
"""Metrics of the figure for classes of atomic descriptions, as means over all windows."""


def anticipation_tables(results: Results) -> list[Table]:
    """Return the table of the rows without a goal; empty where no row of the run anticipates."""
    title = (
        "Anticipation, no goal is given: the steps between Start and Goal (M, the paper's Future), all steps (F, its "
        "Full), the steps after Start with the place of the Goal (A)"
    )
    columns = (*of_table("open"), *of_table("anticipation"))
    shown = [row for row in results.variants() if method(row).anticipates]
    return filled_tables(results, [TableSpec("anticipation", title, shown, columns, ("none", "sample"))])
