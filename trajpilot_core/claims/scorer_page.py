"""The page on the paper's scorer: its gate, its pool, what each input adds, and where its gain comes from."""

from collections import defaultdict
from collections.abc import Sequence

from schemas.claims import BASE, DRAWN, NO_INFORMATION, NO_STYLE, ClaimsConfig, world_seeds
from schemas.results import GateRow, Headroom
from trajpilot_core.claims.attribution import SIGNS, Source, attribution_text, lead, sources
from trajpilot_core.claims.markdown import (
    METRIC_NAMES,
    change,
    name,
    picture,
    rate,
    section,
    seeds,
    table,
)
from trajpilot_core.claims.page_worlds import SHOWN_METRICS, reading
from trajpilot_core.claims.plots import Key, Panel, bare_line, keys_of, sheet
from trajpilot_core.claims.study import queries_picture, queries_section, rank_section, spread
from trajpilot_core.claims.tables import Evidence
from trajpilot_core.report.charts import Axes, line_chart

INPUT_ROWS = ("scorer_no_labels", "scorer_no_motion", "scorer_permuted")
BESIDE = ("no_traj", "endpoint_traj", "knn_labels", "pool_mean", "top1", "scorer", "scorer_plus")
GATE_WORLDS = (BASE, DRAWN, NO_STYLE, NO_INFORMATION)
TOLERANCE = 1e-6
"""Points by which the two sides of the identity may differ (the tables are rounded)."""
GATE_TEXT = """\
A closed gate answers with the fallback, so by definition the overall gain is the open rate times the gain on the
opened windows; both sides are computed apart and printed. `harmed`: opened windows with fewer middle steps right
than the fallback. Gains are points of M@1 over No-Traj, over windows. Values are means over the seeds, the range
over seeds in brackets, and how many of the planned seeds there are where some are missing.
"""
HEADROOM_TEXT = """\
What the K nearest training windows could give: middle steps whose truth stands at the same step, or at any middle
step, of some candidate, and the best candidate chosen by the truth (a diagnostic, no method). Plain mean over H;
means over seeds, the range over seeds in brackets, and how many of the planned seeds there are where some are
missing. `random`: a pool of the same size drawn at random.
"""
INPUTS_TEXT = """\
Scorers that were trained without an input, and the trained Scorer that is shown the candidates' trajectories in a
wrong order. A difference above zero is what the input adds.
"""
BESIDE_TEXT = "The rows that use the same pool, and those that use none: plain mean over H, percent, 95 % intervals.\n"


def scorer_pages(evidence: Evidence, cfg: ClaimsConfig) -> dict[str, bytes]:
    """Return scorer.md and its pictures."""
    blocks = [
        "# The paper's scorer, understood\n",
        "> **Simulated world**, that of `docs/claims.md`: nothing here may stand beside the paper's numbers.\n",
        f"World `{BASE}`, {len(cfg.seeds)} seeds planned, unless a line says otherwise.\n",
        gate_section(evidence, cfg),
        headroom_section(evidence, cfg),
        inputs_section(evidence, cfg),
        rank_section(evidence, cfg),
        queries_section(evidence, cfg),
        attribution_section(evidence, "scorer", cfg),
        beside_section(evidence, cfg),
        attribution_section(evidence, "scorer_plus", cfg),
    ]
    pictures = {
        "gate.svg": gate_picture(evidence),
        "headroom.svg": headroom_picture(evidence, cfg),
        "queries.svg": queries_picture(evidence),
    }
    return {"scorer.md": "\n".join(blocks).encode()} | {f"claims/{file}": drawn for file, drawn in pictures.items()}


def gate_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the gate's rate and gains by horizon, the identity, and the gate in the other worlds."""
    by_horizon: dict[int | None, list[GateRow]] = defaultdict(list)
    for place, row in evidence.gate:
        if place.world == BASE:
            by_horizon[row.horizon].append(row)
    n = len(world_seeds(cfg, BASE))
    lines = [_gate_line(f"H={h}", by_horizon[h], n) for h in cfg.horizons]
    lines.append(_gate_line("all windows", by_horizon[None], n))
    others = [
        _gate_line(f"`{world}`", _over_all(evidence, world), len(world_seeds(cfg, world))) for world in GATE_WORLDS
    ]
    header = ["open, %", "gain on opened", "open rate × gain on opened", "overall gain", "harmed, %", "windows"]
    return section(
        "The gate", GATE_TEXT, table(["", *header], lines), identity_text([row for _, row in evidence.gate]),
        gate_text(by_horizon, cfg), picture("gate.svg", "Open rate and gain of the gate over the horizon"),
        "### In the other worlds, all windows\n", table(["world", *header], others),
    )  # fmt: skip


def _over_all(evidence: Evidence, world: str) -> list[GateRow]:
    """Return the gate of a world over all its windows, a row per seed."""
    return [row for place, row in evidence.gate if place.world == world and row.horizon is None]


def _product(row: GateRow) -> float:
    """Return open rate times gain on the opened windows, points."""
    return row.open_rate / 100.0 * row.gain_opened


def _gate_line(title: str, rows: Sequence[GateRow], planned: int) -> list[str]:
    """Return one line of the gate's table, of the seeds that are there."""
    return [
        title, spread([r.open_rate for r in rows], planned), spread([r.gain_opened for r in rows], planned, 1, True),
        spread([_product(r) for r in rows], planned, 2, True),
        spread([r.gain_overall for r in rows], planned, 2, True),
        spread([r.harmed for r in rows], planned), str(sum(r.n_windows for r in rows)),
    ]  # fmt: skip


def identity_text(rows: Sequence[GateRow]) -> str:
    """Say whether the two sides of the identity agree, in every row of every world."""
    if not rows:
        return "The identity: not run."
    worst = max(abs(_product(row) - row.gain_overall) for row in rows)
    told = "holds" if worst <= TOLERANCE else "**fails**"
    return f"The identity {told} in {len(rows)} rows (largest difference {worst:.1e} points)."


def gate_text(by_horizon: dict[int | None, list[GateRow]], cfg: ClaimsConfig) -> str:
    """Say in words how the gate moves with the horizon, and what an open gate brings."""
    overall = by_horizon.get(None, [])
    first, last = by_horizon.get(cfg.horizons[0], []), by_horizon.get(cfg.horizons[-1], [])
    if not (overall and first and last):
        return ""
    rates = [sum(row.open_rate for row in rows) / len(rows) for rows in (first, last)]
    moved = "more often than" if rates[1] > rates[0] else "less often than" if rates[1] < rates[0] else "as often as"
    gains = [row.gain_opened for row in overall]
    told = (
        "gains in every seed"
        if min(gains) > 0
        else "loses in every seed"
        if max(gains) < 0
        else "gains in some seeds only"
    )
    return (
        f"At H={cfg.horizons[-1]} the gate opens {moved} at H={cfg.horizons[0]} ({rates[1]:.1f} and {rates[0]:.1f} %). "
        f"On the windows where it opens the Scorer {told} ({spread(gains, len(cfg.seeds), 1, True)} points)."
    )


HEADROOM_COLUMNS = (
    ("same_step_recall", "same step, %", 1),
    ("any_step_recall", "any step, %", 1),
    ("oracle_m1", "best candidate M@1, %", 1),
    ("oracle_mseq", "best candidate MSeq, %", 1),
    ("endpoint_cosine", "endpoint cosine", 3),
    ("endpoint_cosine_random", "random", 3),
    ("best_mid_cosine", "best middle cosine", 3),
    ("best_mid_cosine_random", "random", 3),
)
"""(column of `Headroom`, heading, places after the point)."""


def headroom_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return what the pool could give, by its size."""
    rows = [(place.seed, row) for place, row in evidence.headroom if place.world == BASE]
    pools, n = sorted({row.pool for _, row in rows}), len(world_seeds(cfg, BASE))
    lines = [
        [str(pool), *(spread(_by_seed(rows, pool, c, cfg), n, digits) for c, _, digits in HEADROOM_COLUMNS),
         str(sum(row.n_windows for _, row in rows if row.pool == pool))]
        for pool in pools
    ]  # fmt: skip
    header = ["K", *(title for _, title, _ in HEADROOM_COLUMNS), "windows"]
    return section(
        "What the pool could give",
        HEADROOM_TEXT,
        table(header, lines),
        picture("headroom.svg", "Headroom by pool size"),
        _headroom_by_horizon(rows, n),
    )


def _headroom_by_horizon(rows: Sequence[tuple[int, Headroom]], planned: int) -> str:
    """Return what the largest pool could give at each H."""
    if not rows:
        return "By H: not run."
    largest = max(row.pool for _, row in rows)
    kept = [row for _, row in rows if row.pool == largest]
    lines = [[f"H={h}", *_headroom_cells(kept, h, planned)] for h in sorted({row.horizon for row in kept})]
    return section(f"K={largest}, by H", table(["", *(title for _, title, _ in HEADROOM_COLUMNS)], lines), level=3)


def _headroom_cells(rows: Sequence[Headroom], horizon: int, planned: int) -> list[str]:
    """Return every column at one H, of the seeds that are there."""
    held = [row for row in rows if row.horizon == horizon]
    return [spread([getattr(row, column) for row in held], planned, d) for column, _, d in HEADROOM_COLUMNS]


def _by_seed(rows: Sequence[tuple[int, Headroom]], pool: int, column: str, cfg: ClaimsConfig) -> list[float]:
    """Return the plain mean over H of one column, per seed; a seed that lacks an H does not count."""
    values: dict[int, dict[int, float]] = defaultdict(dict)
    for seed, row in rows:
        if row.pool == pool:
            values[seed][row.horizon] = float(getattr(row, column))
    whole = [found for _, found in sorted(values.items()) if set(found) == set(cfg.horizons)]
    return [sum(found.values()) / len(found) for found in whole]


def inputs_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return what each input of the Scorer adds."""
    lines = []
    for row in INPUT_ROWS:
        for metric in SHOWN_METRICS:
            found = lead(evidence, "scorer", row, metric, cfg)
            takes = str(found.figure.n_takes) if found.figure else ""
            difference = f"Scorer − {name(row)}"
            cells = [change(found.figure), seeds(found.figure), takes, SIGNS[found.shown], found.doubt]
            lines.append([difference, METRIC_NAMES[metric], *cells])
    header = ["difference", "metric", "points [95 %]", "each seed", "takes", "interval", "note"]
    return section("What each input adds", INPUTS_TEXT, table(header, lines))


def attribution_section(evidence: Evidence, row: str, cfg: ClaimsConfig) -> str:
    """Return where the gain of a row over No-Traj comes from."""
    gain, found = lead(evidence, row, "no_traj", "m1", cfg), sources(evidence, row, cfg)
    lines = [_source_line(source) for source in found]
    return section(
        f"Has {name(row)} a gain over No-Traj, and from where?",
        attribution_text(gain, found),
        table(["possible source", "needs", "figures", "verdict"], lines),
        "A retrieved trajectory is a function of the query's endpoints and the training data: against an exact model "
        "of the endpoints no choice among candidates can win. `shown`: the intervals exclude zero as needed.",
    )


def _source_line(source: Source) -> list[str]:
    """Return one line of the attribution."""
    return [source.title, source.needs, "; ".join(lead.text for lead in source.leads), source.shown]


def beside_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the Scorer and Scorer+ beside the rows that they are held against."""
    lines = []
    for row in BESIDE:
        read = [reading(evidence, BASE, row, None, metric, cfg) for metric in SHOWN_METRICS]
        leads = [
            reading(evidence, BASE, row, "scorer", metric, cfg) if row != "scorer" else None for metric in SHOWN_METRICS
        ]
        takes = str(read[0].n_takes) if read[0] else ""
        cells = ["–" if row == "scorer" else change(figure) for figure in leads]
        lines.append([name(row), *map(rate, read), *cells, takes])
    metrics = [METRIC_NAMES[metric] for metric in SHOWN_METRICS]
    header = [
        "row",
        *(f"{metric}, %" for metric in metrics),
        *(f"{metric} minus Scorer's" for metric in metrics),
        "takes",
    ]
    return section("The Scorer and Scorer+ beside the other rows", BESIDE_TEXT, table(header, lines))


def gate_picture(evidence: Evidence) -> bytes:
    """Draw the open rate and the gain on opened windows over H, a line per seed."""
    rows = [(place.seed, row) for place, row in evidence.gate if place.world == BASE and row.horizon is not None]
    ticks = tuple(sorted({float(row.horizon or 0) for _, row in rows}))
    panels: list[Panel] = []
    keys: list[Key] = []
    for column, title, label in (("open_rate", "Open rate of the gate", "open, %"),
                                 ("gain_opened", "Gain on opened windows", "points of M@1")):  # fmt: skip
        series = [
            bare_line(f"seed {seed}", f"seed{seed % 3}",
                      sorted((float(r.horizon or 0), getattr(r, column)) for s, r in rows if s == seed), "circle")
            for seed in sorted({seed for seed, _ in rows})
        ]  # fmt: skip
        keys = keys_of(series) or keys
        panels.append(
            Panel(f"{title} (simulated world)", line_chart(Axes(title, "horizon H (steps)", label, ticks), series))
        )
    return sheet(panels, keys)


def headroom_picture(evidence: Evidence, cfg: ClaimsConfig) -> bytes:
    """Draw recalls and the best candidate over the size of the pool, means over seeds and H."""
    rows = [(place.seed, row) for place, row in evidence.headroom if place.world == BASE]
    pools = sorted({row.pool for _, row in rows})
    named = (
        ("same_step_recall", "same step", "no_traj"), ("any_step_recall", "any step", "endpoint_traj"),
        ("oracle_m1", "best candidate, M@1", "oracle"), ("oracle_mseq", "best candidate, MSeq", "scorer"),
    )  # fmt: skip
    series = []
    for column, title, style in named if pools else ():
        values = [(float(pool), _by_seed(rows, pool, column, cfg)) for pool in pools]
        means = [(pool, sum(found) / len(found)) for pool, found in values if found]
        series.append(bare_line(title, style, means, "circle"))
    axes = Axes("Headroom by pool size", "candidates K", "%", tuple(map(float, pools)))
    return sheet([Panel("What the pool could give (simulated world)", line_chart(axes, series))], keys_of(series))
