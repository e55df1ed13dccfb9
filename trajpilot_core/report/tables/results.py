"""The printed tables, one structure that HTML, LaTeX and JSON all render, and the sources of a gain.

Source: docs/decisions/metrics.md; docs/decisions/scorer.md.
"""

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from schemas.config import CompletedReport
from schemas.results import Judgement, Metric
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.evaluation.trained_rows import FLOORS, undertrained_rows
from trajpilot_core.methods import METHODS, in_order, method, predictors, with_role
from trajpilot_core.methods import anticipation as rows
from trajpilot_core.methods.base import REFERENCE, Method
from trajpilot_core.metrics import METRICS, of_table
from trajpilot_core.paper.published import CLOSED_ROWS, published_settings
from trajpilot_core.report.tables.groups import GroupedTable, TableRow, grouped, marked, open_metrics, row_name
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value, number

EVERY_POOLING = ("none", "plain", "sample")
TOO_FEW = "too few takes"


@dataclass(frozen=True)
class ResultCell:
    """One printed number; `metric` is the row of the metrics table that it shows."""

    metric: Metric
    is_best: bool

    @property
    def key(self) -> str:
        """Key of the cell, the same in HTML and JSON."""
        m = self.metric
        at = m.pooling if m.horizon is None else str(m.horizon)
        return "|".join((m.variant, m.reference or "", at, m.metric))

    @property
    def text(self) -> str:
        """Value as printed; differences carry their sign."""
        return number(self.metric.value, is_signed=self.metric.reference is not None)

    @property
    def interval(self) -> str:
        """Interval as printed, empty where there is none."""
        m = self.metric
        if not (math.isfinite(m.low) and math.isfinite(m.high)):
            return ""
        is_signed = m.reference is not None
        return f"{number(m.low, is_signed=is_signed)}, {number(m.high, is_signed=is_signed)}"

    @property
    def bracketed(self) -> str:
        """Interval in brackets, or the reason why there is none."""
        return f"[{self.interval}]" if self.interval else TOO_FEW

    @property
    def sign(self) -> str:
        """`better` or `worse` where a difference's interval excludes zero and the value prints as more than 0.0."""
        m = self.metric
        if m.reference is None or m.low <= 0 <= m.high or self.text == number(0.0):
            return ""
        return "better" if (m.value > 0) == METRICS[m.metric].higher_is_better else "worse"


@dataclass(frozen=True)
class Results:
    """The metrics averaged over seeds with intervals over takes, and the rows that do not count as trained."""

    metrics: tuple[Metric, ...]
    undertrained: frozenset[str]

    def name(self, variant: str) -> str:
        """Return the printed name of a row, marked where it does not count as trained."""
        return marked(row_name(variant), variant, self.undertrained)

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
    kept = tuple(m for m in metrics if m.seed is None and m.cluster == "take")
    return Results(kept, undertrained)


def build_table(
    id_: str,
    title: str,
    results: Results,
    variants: Sequence[str],
    metrics: Sequence[str],
    *,
    reference: str | None = None,
    poolings: Collection[str] = EVERY_POOLING,
) -> GroupedTable[ResultCell]:
    """Build one table of some variants and metrics; rows and groups without numbers are left out.

    Args:
        metrics: its columns.
        reference: of paired differences; None: the values themselves.
        poolings: which figures: `none` per horizon, `plain` and `sample` over the horizons.
    """

    def rows(group: Sequence[Metric]) -> list[TableRow[ResultCell]]:
        shown = in_order({m.variant for m in group})
        by_variant = {variant: {m.metric: m for m in group if m.variant == variant} for variant in shown}
        return [
            TableRow(
                variant,
                row_name(variant),
                tuple(
                    ResultCell(m, _is_best(m, group, results))
                    for name in metrics
                    if (m := by_variant[variant].get(name))
                ),
                variant in results.undertrained,
            )
            for variant in shown
        ]

    chosen = (m for m in results.find(set(variants), reference) if m.metric in metrics and m.pooling in poolings)
    return grouped(id_, title, metrics, chosen, rows)


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

    Args:
        value: the candidate.
        others: those of the other rows that count as trained, and of the floors.
        higher: larger values are better; a share of zero is never the best.
    """
    printed = number(value, digits)
    if higher and printed == number(0.0, digits):
        return False
    return all((value > other) == higher and number(other, digits) != printed for other in others)


def all_tables(results: Results) -> list[GroupedTable[ResultCell]]:
    """Return the tables of the report, in reading order, rows without a goal aside; empty ones are left out."""
    variants = [variant for variant in results.variants() if not method(variant).anticipates]
    main = with_role("main")
    others = [variant for variant in variants if variant not in main]
    against = [variant for variant in variants if variant != REFERENCE]
    parts = with_role("ablation")
    whole = [variant for variant in variants if variant not in parts]
    to_reference = f"Difference to {row_name(REFERENCE)}, paired over takes"
    first = functools.partial(build_table, results=results, metrics=open_metrics(), poolings=("plain", "sample"))
    each = functools.partial(build_table, results=results, metrics=open_metrics(), poolings=("none",))
    tables = [
        first("overview", "All rows but ablations over all horizons", variants=whole),
        first("gain", to_reference, variants=whole, reference=REFERENCE),
        first("ablations", "Ablations over all horizons", variants=parts),
        first(
            "gain-ablations",
            f"Ablations: {to_reference[:1].lower()}{to_reference[1:]}",
            variants=parts,
            reference=REFERENCE,
        ),
        each("horizons", "The main rows per horizon", variants=main),
        each(
            "gain-horizons",
            f"Difference to {row_name(REFERENCE)} per horizon, paired over takes",
            variants=against,
            reference=REFERENCE,
        ),
        each("controls", "Ablations and controls per horizon", variants=others),
        build_table("sequences", "Decoded sequences", results, variants, of_table("sequence")),
    ]
    # differences with a meaning are in the tables of attribution
    plain = {other for row in METHODS for other, meaning in row.against.items() if not meaning}
    for reference in in_order(plain - {REFERENCE}):
        title = f"Difference to {row_name(reference)}, paired over takes"
        tables.append(build_table(f"gain-{reference}", title, results, variants, open_metrics(), reference=reference))
    return [table for table in tables if table.groups]


def ablations() -> dict[str, list[str]]:
    """Return row -> its ablations."""
    whole = dict.fromkeys(row.part_of for row in METHODS if row.part_of)
    return {id_: [row.id for row in METHODS if row.part_of == id_] for id_ in whole if id_}


def attribution_tables(results: Results) -> list[GroupedTable[ResultCell]]:
    """Return the tables of differences: the plain mean of the horizons, then the rest; empty without the rows."""
    tables = []
    for row in METHODS:
        title = f"{row.name} minus the rows that show where its gain comes from, paired over takes"
        tables += [
            against(f"against-{row.id}", title, results, row, plain=True),
            against(
                f"against-{row.id}-horizons", f"{row.name}: the same differences per horizon", results, row, plain=False
            ),
        ]
    return [table for table in tables if table.groups]


def against(id_: str, title: str, results: Results, row: Method, *, plain: bool) -> GroupedTable[ResultCell]:
    """Build a table of differences with one row per reference: the plain mean, or everything else.

    A difference is undertrained if either side is.
    """
    questions = {reference: meaning for reference, meaning in row.against.items() if meaning}

    def rows(group: Sequence[Metric]) -> list[TableRow[ResultCell]]:
        by_cell = {(m.reference, m.metric): m for m in group}
        return [
            TableRow(
                reference,
                f"minus {row_name(reference)}",
                tuple(ResultCell(m, is_best=False) for name in open_metrics() if (m := by_cell.get((reference, name)))),
                bool({reference, row.id} & results.undertrained),
                meaning,
            )
            for reference, meaning in questions.items()
        ]

    differences = (
        m
        for m in results.metrics
        if m.variant == row.id
        and m.reference in questions
        and m.metric in open_metrics()
        and (m.pooling == "plain") == plain
    )
    return grouped(id_, title, open_metrics(), differences, rows)


def absent_rows(results: Results) -> str:
    """Return the names of the rows without figures in this run; empty where it has all.

    Rows without a goal are listed only in runs that anticipate.
    """
    scored = set(results.variants())
    anticipates = any(row.anticipates for row in METHODS if row.id in scored)
    missing = [row.name for row in METHODS if row.id not in scored and (anticipates or not row.anticipates)]
    return f"{NOTHING}: {'; '.join(missing)}" if missing and scored else ""


FUTURE = ("M@1", "M@5", "MSeq")
POOLINGS = ("none", "sample")
GOAL_GIVEN = (
    predictors.ORACLE.id,
    predictors.ORACLE_GOAL_DROPOUT.id,
    predictors.NO_TRAJ.id,
    predictors.NO_TRAJ_GOAL_DROPOUT.id,
)
"""Columns of goal_dropout_fullgoal: without and with goal dropout, the predictor with trajectories before the other."""
GOAL_MASKED = (rows.ORACLE_NO_DROPOUT.id, rows.ORACLE.id, rows.NO_TRAJ_NO_DROPOUT.id, rows.NO_TRAJ.id)
"""Columns of goal_dropout_anticipation_full, in the same order."""
OVERALL = ("SR", "Mid mAcc", "mIoU")
"""Columns of the means over the horizons."""
FULL = (*OVERALL, "ED")
"""Columns of each horizon."""
PANEL = ("M@1", "M@5", "MSeq")
"""Metrics of the figure for classes of atomic descriptions, as means over all windows."""
SETTINGS = ("Benchmark", "|V|", "λ bridge", "transition weight w", "smoothing / temperature", "masks", "candidates K")


def anticipation_tables(results: Results) -> list[GroupedTable[ResultCell]]:
    """Return the tables; empty where no row of the run anticipates."""
    if not any(method(variant).anticipates for variant in results.variants()):
        return []
    shown = [row for row in with_role("anticipation") if row not in (GOAL_MASKED[0], GOAL_MASKED[2])]
    tables = (
        build_table(
            "anticipation",
            "Anticipation, no goal is given: the steps between Start and Goal (M, the paper's Future), all steps (F, "
            "its Full), the steps after Start with the place of the Goal (A)",
            results,
            shown,
            (*open_metrics(), *of_table("anticipation")),
            poolings=POOLINGS,
        ),
        build_table(
            "goal-dropout-fullgoal",
            "Goal dropout, planning with the goal: the paper's Future (M)",
            results,
            GOAL_GIVEN,
            FUTURE,
            poolings=POOLINGS,
        ),
        build_table(
            "goal-dropout-anticipation",
            "Goal dropout, anticipation without the goal: the paper's Future (M)",
            results,
            GOAL_MASKED,
            FUTURE,
            poolings=POOLINGS,
        ),
    )
    return [table for table in tables if table.groups]


def closed_tables(results: Results, cfg: CompletedReport, n_labels: int) -> list[GroupedTable[ResultCell]]:
    """Return the paper's tables of a closed vocabulary; none for an open one.

    Args:
        cfg: whether labels are ranked by class heads, or answers are classes.
    """
    tables = []
    if cfg.heads is not None:
        title = f"Closed-vocabulary planning, {n_labels:,} labels"
        tables += [
            build_table(
                "closed-overall", f"{title}: mean of the horizons", results, CLOSED_ROWS, OVERALL, poolings=("plain",)
            ),
            build_table("closed-full", f"{title}: each horizon", results, CLOSED_ROWS, FULL, poolings=("none",)),
        ]
    if cfg.is_closed:
        title = "Classes of atomic descriptions: means over all windows"
        tables.append(build_table("closed-panel", title, results, CLOSED_ROWS, PANEL, poolings=("sample",)))
    return [table for table in tables if table.groups]


def settings_table(cfg: CompletedReport, n_labels: int, *, is_simulated: bool) -> Table | None:
    """Return the hyperparameters of a run with class heads, with the paper's on a recorded corpus; else None."""
    if cfg.heads is None or cfg.corpus is None:
        return None
    title = spec_of(cfg.corpus).title
    ours: tuple[Cell, ...] = (
        title if not is_simulated else f"simulated world in the layout of {title}",
        Value(n_labels, digits=0),
        f"{cfg.heads.bridge_weight:g}",
        f"{cfg.heads.decoding.weight:g}",
        f"{cfg.heads.decoding.smoothing:g} / {cfg.heads.decoding.temperature:g}",
        "on" if cfg.heads.decoding.is_masked else "off",
        str(cfg.heads.candidates),
    )
    rows = [ours]
    printed = published_settings(cfg.corpus)
    if printed and not is_simulated and cfg.released is None:
        rows.append(
            (
                f"{title}, published",
                f"{printed['labels']:g}",
                f"{printed['lambda_bridge']:g}",
                f"{printed['transition_weight']:g}",
                f"{printed['smoothing']:g} / {printed['temperature']:g}",
                "",
                "",
            )
        )
    return Table("Settings of the class heads", SETTINGS, tuple(rows))
