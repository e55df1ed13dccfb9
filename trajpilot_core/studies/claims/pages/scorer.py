"""Tables of the paper's scorer: its gate, its pool, what each input and more queries add, where a gain comes from."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from schemas.claims import BASE, MAIN, ClaimsConfig
from schemas.results import GateRow, ScorerStudy
from trajpilot_core.methods import METHODS
from trajpilot_core.report.tables.table import Cell, Table
from trajpilot_core.studies.claims.evidence.ranking import judge_ranking
from trajpilot_core.studies.claims.evidence.readings import (
    METRIC_NAMES,
    SHOWN_METRICS,
    change,
    name,
    rate,
    reading,
    seeds,
    spread,
    spreads,
    takes,
)
from trajpilot_core.studies.claims.evidence.shares import RANKED
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.pages.summary import SHOWN
from trajpilot_core.studies.claims.verdicts.attribution import attribution_text, lead, sources

COMPARED = (
    "no_traj",
    "endpoint_traj",
    "knn_labels",
    "pool_mean",
    "top1",
    "scorer",
    "scorer_plus",
)
"""Rows of the page's last table, from what needs least to what needs most."""
TOLERANCE = 1e-6
"""Points by which the two sides of the identity may differ (the tables are rounded)."""
MEANS = "Means over the seeds, the range over seeds in brackets."
SHOWN_QUANTITIES = (
    "M@1",
    "always open M@1",
    "open rate",
    "harmed",
    "rank: best candidate first",
    "rank: best candidate among the first 5",
    "rank: area under the gate's curve",
)
"""Of the study, on the short page."""
Study = Sequence[tuple[int, ScorerStudy]]
"""(seed of the world, row)."""


def _product(row: GateRow) -> float:
    """Return open rate times gain on the opened windows, points."""
    return row.open_rate / 100.0 * row.gain_opened


GATE_COLUMNS: tuple[tuple[str, Callable[[GateRow], float], int, bool], ...] = (
    ("open, %", lambda row: row.open_rate, 1, False),
    ("gain on opened", lambda row: row.gain_opened, 1, True),
    ("overall gain", lambda row: row.gain_overall, 2, True),
    ("harmed, %", lambda row: row.harmed, 1, False),
)
"""Heading, quantity, digits after the point, printed with a sign."""
POOL_COLUMNS = (
    ("same_step_recall", "same step, %", 1),
    ("oracle_m1", "best candidate M@1, %", 1),
    ("endpoint_cosine", "endpoint cosine", 2),
    ("best_mid_cosine", "best middle cosine", 2),
    ("best_mid_cosine_random", "random middle cosine", 2),
)
"""(column of `Headroom`, heading, digits after the point)."""


def scorer_tables(evidence: Evidence, cfg: ClaimsConfig) -> dict[str, Table]:
    """Return every table of the scorers by the name of its block in scorer.md."""
    return {
        "gate": gate_table(evidence, cfg),
        "pool": pool_table(evidence, cfg),
        "inputs": inputs_table(evidence, cfg),
        "queries": queries_table(evidence, cfg),
        "source": attribution_table(evidence, "scorer", cfg),
        "source of Scorer+": attribution_table(evidence, "scorer_plus", cfg),
        "comparison": comparison_table(evidence, cfg),
    }


def gate_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return the gate's rate and gains over all windows, by world."""
    found: dict[str, list[GateRow]] = defaultdict(list)
    for origin, row in evidence.gate:
        if row.horizon is None:
            found[origin.world].append(row)
    columns = [column[1:] for column in GATE_COLUMNS]
    rows = tuple((world, *spreads(found[world], columns, len(cfg.seeds))) for world in MAIN)
    note = f"Gains: points of M@1 over No-Traj. {MEANS} {identity_text([row for _, row in evidence.gate])}"
    return Table("The gate of the Scorer", ("world", *(column[0] for column in GATE_COLUMNS)), rows, note)


def identity_text(rows: Sequence[GateRow]) -> str:
    """Return whether overall gain = open rate × gain on the opened windows, in every row of every world."""
    if not rows:
        return "The identity: not run."
    worst = max(abs(_product(row) - row.gain_overall) for row in rows)
    verdict = "holds" if worst <= TOLERANCE else "FAILS"
    return f"Overall gain = open rate × gain on opened {verdict} in {len(rows)} rows."


def pool_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return what the pool could give by its size, plain mean over H."""
    pools = sorted({row.pool for origin, row in evidence.headroom if origin.world == BASE})
    rows = tuple(
        (
            f"K={pool}",
            *(
                spread(pool_means(evidence, pool, column, cfg), len(cfg.seeds), digits)
                for column, _, digits in POOL_COLUMNS
            ),
        )
        for pool in pools
    )
    note = f"The best candidate is chosen by the truth: a diagnostic, no method. {MEANS}"
    return Table("What the pool could give", ("pool", *(title for _, title, _ in POOL_COLUMNS)), rows, note)


def pool_means(evidence: Evidence, pool: int, column: str, cfg: ClaimsConfig) -> list[float]:
    """Return the plain mean over H of one quantity, for every seed that has all of them."""
    values: dict[int, dict[int, float]] = defaultdict(dict)
    for origin, row in evidence.headroom:
        if (origin.world, row.pool) == (BASE, pool):
            values[origin.seed][row.horizon] = float(getattr(row, column))
    whole = [found for _, found in sorted(values.items()) if set(found) == set(cfg.horizons)]
    return [sum(found.values()) / len(found) for found in whole]


def input_rows() -> list[str]:
    """Return the rows that take an input of the Scorer away, by name."""
    return sorted(one.id for one in METHODS if one.part_of == "scorer")


def inputs_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return what each input of the Scorer adds."""
    found = [lead(evidence, "scorer", row, "m1", cfg) for row in input_rows()]
    rows = tuple(
        (f"Scorer − {name(one.statement.reference)}", change(one.headline), seeds(one.headline), one.verdict, one.shown)
        for one in found
    )
    header = ("difference", "M@1, points [95 %]", "each seed", "verdict", "by the intervals")
    return Table("What each input of the Scorer adds", header, rows)


def attribution_table(evidence: Evidence, row: str, cfg: ClaimsConfig) -> Table:
    """Return where the gain of a row over No-Traj comes from."""
    gain, found = lead(evidence, row, "no_traj", "m1", cfg), sources(evidence, row, cfg)
    lines = tuple((source.title, source.text, source.verdict) for source in found)
    title = f"Has {name(row)} a gain over No-Traj, and from where?"
    return Table(title, ("possible source", "figures, points", "verdict"), lines, attribution_text(gain, found))


def comparison_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return the Scorer and Scorer+ next to the rows that they are held against."""
    lines = []
    for row in COMPARED:
        read = [reading(evidence, BASE, row, None, metric, cfg) for metric in SHOWN_METRICS]
        against: Cell = "–" if row == "scorer" else change(reading(evidence, BASE, row, "scorer", "m1", cfg))
        lines.append((name(row), *map(rate, read), against, takes(read[0])))
    header = ("row", *(f"{METRIC_NAMES[metric]}, %" for metric in SHOWN_METRICS), "M@1 minus Scorer's", "takes")
    return Table("The Scorer and Scorer+ next to the other rows", header, tuple(lines), f"World {BASE}, mean over H.")


def queries_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return how the qualities of the Scorer, its ranking included, change with the number of queries."""
    rows = [
        (origin.seed, row)
        for origin, row in evidence.study
        if (origin.world, row.horizon, row.model) == (BASE, None, RANKED)
    ]
    shares = sorted({row.share for _, row in rows})
    lines = tuple(
        (
            quantity,
            *(
                spread([r.value for _, r in rows if (r.quantity, r.share) == (quantity, share)], len(cfg.seeds), 1)
                for share in shares
            ),
        )
        for quantity in SHOWN_QUANTITIES
        if any(row.quantity == quantity for _, row in rows)
    )
    header = ("quantity, %", *(f"{share:g} % ({_count(rows, share)} queries)" for share in shares))
    ranking = judge_ranking(evidence, BASE, RANKED, cfg)
    shown = SHOWN.get(ranking.verdict, ranking.verdict)
    note = f"{MEANS} That the Scorer's gate and ranking both do better than chance is {shown} ({ranking.text})."
    return Table("How good the ranking is, and what more queries change", header, lines, note)


def _count(rows: Study, share: float) -> str:
    """Return how many queries a share is, the range over seeds."""
    counts = sorted({row.n_queries for _, row in rows if row.share == share})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
