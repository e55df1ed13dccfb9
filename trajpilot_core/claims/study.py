"""Sections of the scorer's page: the quality of its ranking, and how all of it changes with the number of queries."""

from collections.abc import Sequence

from schemas.claims import BASE, ClaimsConfig
from schemas.results import ScorerStudy
from trajpilot_core.claims.markdown import name, number, picture, section, table
from trajpilot_core.claims.plots import MARKS, Panel, bare_line, keys_of, sheet
from trajpilot_core.claims.tables import Evidence
from trajpilot_core.report.charts import Axes, line_chart
from trajpilot_core.report.names import in_order

RANK = "rank: "
"""How the names of the qualities of a ranking begin."""
DRAWN_QUANTITY = "M@1"
RANK_TEXT = """\
How well the trained ranking orders the candidates, with all the queries that there are. Means over seeds, the range
over seeds in brackets, and how many of the planned seeds there are where some are missing; no intervals over takes.
"""
QUERIES_TEXT = """\
The same scorers trained on a part of their queries, drawn at random; plain mean over H. Means over seeds, the range
over seeds in brackets, and how many of the planned seeds there are where some are missing.
"""
Study = Sequence[tuple[int, ScorerStudy]]
"""(seed of the world, row)."""


def spread(values: Sequence[float], planned: int, digits: int = 1, signed: bool = False) -> str:
    """Print the mean of a value per seed with its range over the seeds, and how many seeds it lacks.

    Args:
        values: one per seed that is there.
        planned: seeds that there should be.
        digits: places after the point.
        signed: print a plus sign.
    """
    if not values:
        return "not run"
    ends = f"{number(min(values), digits, signed)} to {number(max(values), digits, signed)}"
    lacks = "" if len(values) == planned else f"; **{len(values)} of {planned} seeds**"
    return f"{number(sum(values) / len(values), digits, signed)} ({ends}{lacks})"


def of_base(evidence: Evidence) -> Study:
    """Return the study of the world `base`, over all H."""
    return [(place.seed, row) for place, row in evidence.study if place.world == BASE and row.horizon is None]


def shares_of(rows: Study) -> list[float]:
    """Return the shares of queries that were trained on, rising."""
    return sorted({row.share for _, row in rows})


def _count(rows: Study, share: float) -> str:
    """Return how many queries a share is, the range over scorers and seeds."""
    counts = sorted({row.n_queries for _, row in rows if row.share == share})
    return f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"


def rank_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the quality of the ranking with the most queries."""
    rows = [(seed, row) for seed, row in of_base(evidence) if row.quantity.startswith(RANK)]
    lines = []
    for model in in_order({row.model for _, row in rows}):
        own = [(seed, row) for seed, row in rows if row.model == model]
        most = shares_of(own)[-1]
        for quantity in dict.fromkeys(row.quantity for _, row in own):
            values = values_of(own, model, quantity, most)
            windows = sum(row.n_windows for _, row in own if (row.quantity, row.share) == (quantity, most))
            told = [name(model), quantity.removeprefix(RANK), _count(own, most), spread(values, len(cfg.seeds), 2)]
            lines.append([*told, str(windows)])
    header = ["scorer", "quality", "queries", "value", "windows"]
    return section("How good the ranking is", RANK_TEXT, table(header, lines))


def queries_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return how every quantity changes with the number of queries."""
    rows = of_base(evidence)
    shares = shares_of(rows)
    lines = [
        [
            name(model),
            quantity,
            *(spread(values_of(rows, model, quantity, share), len(cfg.seeds), 2) for share in shares),
        ]
        for model in in_order({row.model for _, row in rows})
        for quantity in dict.fromkeys(row.quantity for _, row in rows if row.model == model)
    ]
    header = ["scorer", "quantity", *(f"{share:g} % ({_count(rows, share)} queries)" for share in shares)]
    drawn = picture("queries.svg", "M@1 over the number of queries")
    return section("What more queries change", QUERIES_TEXT, table(header, lines), queries_text(rows, cfg), drawn)


def values_of(rows: Study, model: str, quantity: str, share: float) -> list[float]:
    """Return one quantity per seed, by seed."""
    return list(_by_seed(rows, model, quantity, share).values())


def _by_seed(rows: Study, model: str, quantity: str, share: float) -> dict[int, float]:
    """Return seed -> one quantity, rising."""
    wanted = (model, quantity, share)
    found = {seed: row.value for seed, row in rows if (row.model, row.quantity, row.share) == wanted}
    return dict(sorted(found.items()))


def queries_text(rows: Study, cfg: ClaimsConfig) -> str:
    """Say in words, for every scorer, what the step from the fewest to the most queries did to M@1 in each seed."""
    told = []
    for model in in_order({row.model for _, row in rows if row.quantity == DRAWN_QUANTITY}):
        shares = shares_of([(seed, row) for seed, row in rows if row.model == model])
        few, many = (_by_seed(rows, model, DRAWN_QUANTITY, share) for share in (shares[0], shares[-1]))
        steps = [many[seed] - few[seed] for seed in few if seed in many]
        if len(shares) < 2 or not steps:
            continue
        steps_text = ", ".join(number(step, 1, True) for step in steps)
        what = f"from {shares[0]:g} to {shares[-1]:g} % of its queries M@1 {_movement(steps, len(cfg.seeds))}"
        told.append(f"{name(model)}: {what} ({steps_text} points).")
    return " ".join(told)


def _movement(steps: Sequence[float], planned: int) -> str:
    """Say which way the seeds moved, and how many there are where some are missing."""
    moved = "rises" if min(steps) > 0 else "falls" if max(steps) < 0 else ""
    lacks = "" if len(steps) == planned else f", of which {len(steps)} of {planned} were run"
    return f"{moved} in every seed{lacks}" if moved else f"moves by no common sign over the seeds{lacks}"


def queries_picture(evidence: Evidence) -> bytes:
    """Draw M@1 over the share of queries, a line per scorer, means over seeds."""
    rows = [(seed, row) for seed, row in of_base(evidence) if row.quantity == DRAWN_QUANTITY]
    shares = shares_of(rows)
    series = []
    for model in in_order({row.model for _, row in rows}):
        read = [(share, values_of(rows, model, DRAWN_QUANTITY, share)) for share in shares]
        points = [(share, sum(values) / len(values)) for share, values in read if values]
        series.append(bare_line(name(model), model, points, MARKS.get(model, "circle")))
    axes = Axes("M@1 over queries", "share of the training queries, %", "M@1, %", tuple(shares))
    return sheet([Panel("M@1 by training queries (simulated world)", line_chart(axes, series))], keys_of(series))
