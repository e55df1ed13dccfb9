"""Tables of the paper's scorer: its gate, its pool, what each input and more queries add, where a gain comes from."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from schemas.claims import BASE, FEATURE_SPACE, NO_INFORMATION, NO_STYLE, ClaimsConfig, world_seeds
from schemas.results import GateRow, ScorerStudy
from trajpilot_core.methods import METHODS, in_order
from trajpilot_core.report.tables.table import Cell, Table, number
from trajpilot_core.studies.claims.attribution import SIGNS, attribution_text, lead, sources
from trajpilot_core.studies.claims.readings import (
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
from trajpilot_core.studies.claims.tables import Evidence

BESIDE = ("no_traj", "endpoint_traj", "knn_labels", "pool_mean", "top1", "scorer", "scorer_plus")
"""Rows of the page's last table, from what needs least to what needs most. Named by hand: the text of the page compares
these, and the table of every row shows all."""
GATE_WORLDS = (BASE, FEATURE_SPACE, NO_STYLE, NO_INFORMATION)
TOLERANCE = 1e-6
"""Points by which the two sides of the identity may differ (the tables are rounded)."""
MEANS = "Means over the seeds, the range over seeds in brackets."
MAIN_QUANTITY = "M@1"
Study = Sequence[tuple[int, ScorerStudy]]
"""(seed of the world, row)."""


def _product(row: GateRow) -> float:
    """Return open rate times gain on the opened windows, points."""
    return row.open_rate / 100.0 * row.gain_opened


GATE_COLUMNS: tuple[tuple[str, Callable[[GateRow], float], int, bool], ...] = (
    ("open, %", lambda row: row.open_rate, 1, False),
    ("gain on opened", lambda row: row.gain_opened, 1, True),
    ("open rate × gain on opened", _product, 2, True),
    ("overall gain", lambda row: row.gain_overall, 2, True),
    ("harmed, %", lambda row: row.harmed, 1, False),
)
"""Heading, quantity, places after the point, printed with a sign."""
POOL_COLUMNS = (
    ("same_step_recall", "same step, %", 1),
    ("any_step_recall", "any step, %", 1),
    ("oracle_m1", "best candidate M@1, %", 1),
    ("oracle_mseq", "best candidate MSeq, %", 1),
    ("endpoint_cosine", "endpoint cosine", 3),
    ("endpoint_cosine_random", "random endpoint cosine", 3),
    ("best_mid_cosine", "best middle cosine", 3),
    ("best_mid_cosine_random", "random middle cosine", 3),
)
"""(column of `Headroom`, heading, places after the point)."""


def gate_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return the gate's rate and gains by horizon in `base`, over all its windows, and in the other worlds."""
    found: dict[tuple[str, int | None], list[GateRow]] = defaultdict(list)
    for place, row in evidence.gate:
        found[place.world, row.horizon].append(row)
    lines = [(f"{BASE}, H={h}", found[BASE, h], world_seeds(cfg, BASE)) for h in cfg.horizons]
    lines += [(f"{world}, all windows", found[world, None], world_seeds(cfg, world)) for world in GATE_WORLDS]
    columns = [column[1:] for column in GATE_COLUMNS]
    rows = tuple(
        (what, *spreads(held, columns, len(planned)), str(sum(row.n_windows for row in held)))
        for what, held, planned in lines
    )
    note = f"Gains: points of M@1 over No-Traj. {MEANS} {identity_text([row for _, row in evidence.gate])}"
    return Table("The gate of the Scorer", ("", *(column[0] for column in GATE_COLUMNS), "windows"), rows, note)


def identity_text(rows: Sequence[GateRow]) -> str:
    """Return whether overall gain = open rate × gain on the opened windows, in every row of every world."""
    if not rows:
        return "The identity: not run."
    worst = max(abs(_product(row) - row.gain_overall) for row in rows)
    verdict = "holds" if worst <= TOLERANCE else "FAILS"
    return (
        f"Overall gain = open rate × gain on opened {verdict} in {len(rows)} rows (at most {worst:.1e} points apart)."
    )


def pool_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return what the pool could give by its size, plain mean over H."""
    rows = [(place.seed, row) for place, row in evidence.headroom if place.world == BASE]
    pools, n = sorted({row.pool for _, row in rows}), len(world_seeds(cfg, BASE))
    header = tuple(title for _, title, _ in POOL_COLUMNS)
    by_size = tuple(
        (
            f"K={pool}",
            *(spread(pool_means(evidence, pool, column, cfg), n, digits) for column, _, digits in POOL_COLUMNS),
            str(sum(row.n_windows for _, row in rows if row.pool == pool)),
        )
        for pool in pools
    )
    note = f"The best candidate is chosen by the truth: a diagnostic, no method. {MEANS}"
    return Table("What the pool could give", ("pool", *header, "windows"), by_size, note)


def pool_means(evidence: Evidence, pool: int, column: str, cfg: ClaimsConfig) -> list[float]:
    """Return the plain mean over H of one column in `base`, per seed; a seed that lacks an H does not count."""
    values: dict[int, dict[int, float]] = defaultdict(dict)
    for place, row in evidence.headroom:
        if (place.world, row.pool) == (BASE, pool):
            values[place.seed][row.horizon] = float(getattr(row, column))
    whole = [found for _, found in sorted(values.items()) if set(found) == set(cfg.horizons)]
    return [sum(found.values()) / len(found) for found in whole]


def input_rows() -> list[str]:
    """Return the rows that take an input of the Scorer away, by name."""
    return sorted(one.id for one in METHODS if one.part_of == "scorer")


def inputs_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return what each input of the Scorer adds."""
    rows = []
    for row in input_rows():
        for metric in SHOWN_METRICS:
            found = lead(evidence, "scorer", row, metric, cfg)
            cells = (change(found.figure), seeds(found.figure), takes(found.figure), SIGNS[found.shown], found.doubt)
            rows.append((f"Scorer − {name(row)}", METRIC_NAMES[metric], *cells))
    header = ("difference", "metric", "points [95 %]", "each seed", "takes", "interval", "note")
    return Table("What each input of the Scorer adds", header, tuple(rows))


def attribution_table(evidence: Evidence, row: str, cfg: ClaimsConfig) -> Table:
    """Return where the gain of a row over No-Traj comes from."""
    gain, found = lead(evidence, row, "no_traj", "m1", cfg), sources(evidence, row, cfg)
    lines = tuple((s.title, s.needs, "; ".join(lead.text for lead in s.leads), s.shown) for s in found)
    title = f"Has {name(row)} a gain over No-Traj, and from where?"
    return Table(title, ("possible source", "needs", "figures", "verdict"), lines, attribution_text(gain, found))


def beside_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return the Scorer and Scorer+ next to the rows that they are held against."""
    rows = []
    for row in BESIDE:
        read = [reading(evidence, BASE, row, None, metric, cfg) for metric in SHOWN_METRICS]
        cells: list[Cell] = ["–" for _ in SHOWN_METRICS]
        if row != "scorer":
            cells = [change(reading(evidence, BASE, row, "scorer", metric, cfg)) for metric in SHOWN_METRICS]
        rows.append((name(row), *map(rate, read), *cells, takes(read[0])))
    metrics = [METRIC_NAMES[metric] for metric in SHOWN_METRICS]
    header = ("row", *(f"{m}, %" for m in metrics), *(f"{m} minus Scorer's" for m in metrics), "takes")
    return Table("The Scorer and Scorer+ next to the other rows", header, tuple(rows), f"World {BASE}, mean over H.")


def of_base(evidence: Evidence) -> Study:
    """Return the study of the world `base`, over all H."""
    return [(place.seed, row) for place, row in evidence.study if place.world == BASE and row.horizon is None]


def shares_of(rows: Study) -> list[float]:
    """Return the shares of queries that were trained on, rising."""
    return sorted({row.share for _, row in rows})


def values_of(rows: Study, model: str, quantity: str, share: float) -> dict[int, float]:
    """Return seed -> one quantity, rising."""
    wanted = (model, quantity, share)
    return dict(sorted((s, row.value) for s, row in rows if (row.model, row.quantity, row.share) == wanted))


def queries_table(evidence: Evidence, cfg: ClaimsConfig) -> Table:
    """Return how every quantity of a scorer, its ranking included, changes with the number of queries."""
    rows = of_base(evidence)
    shares, n = shares_of(rows), len(cfg.seeds)
    lines = tuple(
        (
            name(model),
            quantity,
            *(spread(list(values_of(rows, model, quantity, share).values()), n, 2) for share in shares),
        )
        for model in in_order({row.model for _, row in rows})
        for quantity in dict.fromkeys(row.quantity for _, row in rows if row.model == model)
    )
    header = ("scorer", "quantity", *(f"{share:g} % ({_count(rows, share)} queries)" for share in shares))
    note = f"Trained on a random part of the queries; plain mean over H. {MEANS} {queries_text(rows, cfg)}"
    return Table("How good the ranking is, and what more queries change", header, lines, note)


def _count(rows: Study, share: float) -> str:
    """Return how many queries a share is, the range over scorers and seeds."""
    counts = sorted({row.n_queries for _, row in rows if row.share == share})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def queries_text(rows: Study, cfg: ClaimsConfig) -> str:
    """Describe, for every scorer, what the step from the fewest to the most queries did to M@1 in each seed."""
    said = []
    for model in in_order({row.model for _, row in rows if row.quantity == MAIN_QUANTITY}):
        shares = shares_of([(seed, row) for seed, row in rows if row.model == model])
        few, many = (values_of(rows, model, MAIN_QUANTITY, share) for share in (shares[0], shares[-1]))
        steps = [many[seed] - few[seed] for seed in few if seed in many]
        if len(shares) < 2 or not steps:
            continue
        moved = "rises" if min(steps) > 0 else "falls" if max(steps) < 0 else ""
        lacks = "" if len(steps) == len(cfg.seeds) else f", of which {len(steps)} of {len(cfg.seeds)} were run"
        moved = f"{moved} in every seed{lacks}" if moved else f"moves by no common sign over the seeds{lacks}"
        points = ", ".join(number(step, 1, True) for step in steps)
        what = f"from {shares[0]:g} to {shares[-1]:g} % of its queries M@1 {moved}"
        said.append(f"{name(model)}: {what} ({points} points).")
    return " ".join(said)
