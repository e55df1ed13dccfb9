"""Tables of the rows in the main worlds, by entry and over training takes, and of the exact sweep."""

from collections.abc import Sequence

from schemas.claims import BASE, CURVE_ROWS, ENTRIES, MAIN, ClaimsConfig, curve_worlds, sweep_worlds
from trajpilot_core.methods import in_order
from trajpilot_core.report.tables.table import Cell, Table, number
from trajpilot_core.studies.claims.evidence.readings import (
    METRIC_NAMES,
    SHOWN_METRICS,
    change,
    horizons,
    name,
    per_horizon,
    rate,
    reading,
    rows_in_order,
    rows_of,
    seeds,
    takes,
    takes_of,
)
from trajpilot_core.studies.claims.evidence.statistics import Estimate
from trajpilot_core.studies.claims.evidence.tables import CEILING, Evidence
from trajpilot_core.studies.claims.verdicts.entries import EntryOrders

BOUNDS = tuple(f"{CEILING}{row}" for row in ("no_traj", "endpoint_traj", "oracle"))


def rows_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return M@1 and MSeq of every row in `base`, per H."""
    header = ("row", *horizons(cfg), "mean over H", "each seed", "takes")
    tables = []
    for metric in SHOWN_METRICS:
        lines: list[tuple[Cell, ...]] = []
        for row in rows_in_order(evidence, BASE):
            mean = reading(evidence, BASE, row, None, metric, cfg)
            cells = map(rate, per_horizon(evidence, BASE, row, None, metric, cfg))
            lines.append((name(row), *cells, rate(mean), seeds(mean, is_signed=False), takes(mean)))
        tables.append(Table(f"{METRIC_NAMES[metric]} of every row in {BASE}, %", header, tuple(lines)))
    return tuple(tables)


def worlds_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the rows in the main worlds, the exact sweep, and the rows over training takes."""
    return (*controls_tables(evidence, cfg), *sweep_tables(evidence, cfg), *takes_tables(evidence, cfg))


def controls_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return every row in the main worlds."""
    rows = in_order({row for world in MAIN for row in rows_in_order(evidence, world) if CEILING not in row})
    header = ("row", *(f"{world} ({takes_of(evidence, world)} takes)" for world in MAIN))
    return tuple(
        Table(
            f"{METRIC_NAMES[metric]} in the main worlds, %",
            header,
            tuple(
                (name(row), *(rate(reading(evidence, world, row, None, metric, cfg)) for world in MAIN)) for row in rows
            ),
            "Plain mean over H; each world has its own takes.",
        )
        for metric in SHOWN_METRICS
    )


def sweep_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the exact ceilings over the whole sweep, and how far they lie above No-Traj's."""
    header = ("style", "kappa", *map(name, BOUNDS), "Endpoint-Traj − No-Traj", "Oracle − No-Traj", "takes")
    tables = []
    for metric in SHOWN_METRICS:
        lines = []
        for world, (kappa, style) in sweep_worlds(cfg).items():
            levels = [rate(reading(evidence, world, row, None, metric, cfg)) for row in BOUNDS]
            leads = [change(reading(evidence, world, row, BOUNDS[0], metric, cfg)) for row in BOUNDS[1:]]
            lines.append((f"{style:g}", f"{kappa:g}", *levels, *leads, str(takes_of(evidence, world) or "")))
        title = f"What can be known over kappa and style, {METRIC_NAMES[metric]}, %"
        tables.append(Table(title, header, tuple(lines), "One seed, plain mean over H; exact, no model is trained."))
    return tuple(tables)


def sizes_of(cfg: ClaimsConfig) -> dict[str, int]:
    """Return world of the learning curve -> its training takes, rising."""
    sizes = {BASE: cfg.train_takes, **curve_worlds(cfg)}
    return dict(sorted(sizes.items(), key=lambda item: item[1]))


def of_curve(cfg: ClaimsConfig) -> ClaimsConfig:
    """Return the configuration whose only seed is that of the learning curve."""
    return cfg.replace(seeds=(cfg.single_seed,))


def takes_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the rows of the learning curve and their ceilings by training takes, for its one seed."""
    sizes, one = sizes_of(cfg), of_curve(cfg)
    rows = (*CURVE_ROWS, *(f"{CEILING}{row}" for row in CURVE_ROWS))
    return tuple(
        Table(
            f"{METRIC_NAMES[metric]} by training takes, %",
            ("row", *(f"{size} takes" for size in sizes.values())),
            tuple(
                (name(row), *(rate(reading(evidence, world, row, None, metric, one)) for world in sizes))
                for row in rows
            ),
            f"The settings of {BASE}; one seed, plain mean over H; every size has test takes of its own.",
        )
        for metric in SHOWN_METRICS
    )


def entry_tables(evidence: Evidence, compared: Sequence[EntryOrders], cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return every row through the three entries with its place, and the pairs in opposite order beyond chance."""
    figures = {
        row: [reading(evidence, world, row, None, "m1", cfg) for world in ENTRIES]
        for row in in_order(set().union(*(rows_of(evidence, world) for world in ENTRIES)))
    }
    values = [[one.value for each in figures.values() if (one := each[at])] for at in range(len(ENTRIES))]
    lines = tuple(
        (name(row), *(cell for one, of_entry in zip(each, values, strict=True) for cell in _placed(one, of_entry)))
        for row, each in figures.items()
    )
    header = ("row", *(part for world in ENTRIES for part in (f"{world}, %", "place")))
    pairs = tuple(
        (
            " and ".join(orders.worlds),
            f"{name(pair.row)} − {name(pair.reference)}",
            change(pair.first),
            change(pair.second),
        )
        for orders in compared
        for pair in orders.opposite
        if pair.is_shown()
    )
    return (
        Table("The same takes through three entries, M@1", header, lines, entries_text(compared)),
        Table("Pairs in opposite order beyond chance", ("entries", "pair", "first, points", "second, points"), pairs),
    )


def _placed(one: Estimate | None, values: Sequence[float]) -> tuple[Cell, Cell]:
    """Return the level of a row, and its place among those of its entry."""
    return rate(one), "" if one is None else str(1 + sum(other > one.value for other in values))


def entries_text(compared: Sequence[EntryOrders]) -> str:
    """Say how alike the orders are: pixels of a video show motion, the other entries do not."""
    parts = [
        f"{' and '.join(world.removeprefix('by_') for world in orders.worlds)} {number(orders.tau, 2)} "
        f"({sum(pair.is_shown() for pair in orders.opposite)} pairs opposite beyond chance)"
        for orders in compared
        if orders.tau is not None
    ]
    return f"Kendall's tau {', '.join(parts) or 'not run'}. Only video shows motion in its pixels."
