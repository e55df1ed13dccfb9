"""Tables of the rows in the rendered world, in the control worlds, over the sweep, over training takes, by entry."""

from collections.abc import Sequence

from schemas.claims import (
    BASE,
    FEATURE_SPACE,
    NO_INFORMATION,
    NO_STYLE,
    SWEEP_ROWS,
    ClaimsConfig,
    curve_worlds,
    sweep_worlds,
)
from trajpilot_core.methods import in_order, with_role
from trajpilot_core.report.tables.table import Cell, Table, number
from trajpilot_core.studies.claims.entries import EntryOrders
from trajpilot_core.studies.claims.readings import (
    METRIC_NAMES,
    SHOWN_METRICS,
    change,
    horizons,
    name,
    per_horizon,
    rate,
    reading,
    rows_in_order,
    seeds,
    takes,
    takes_of,
)
from trajpilot_core.studies.claims.tables import CEILING, Evidence

CONTROL_WORLDS = (BASE, FEATURE_SPACE, NO_STYLE, NO_INFORMATION)
CURVE_BOUNDS = (f"{CEILING}no_traj", f"{CEILING}endpoint_traj", f"{CEILING}oracle")
CONTROLS_NOTE = (
    f"Plain mean over H; each world has its own takes. {BASE} has more takes for training and another recipe than the "
    f"others, so controls are compared with {FEATURE_SPACE}."
)
ENTRY_NOTE = (
    "The same settings through video files and through tables of features. The number of takes and the recipe differ, "
    "too. Fails: two rows stand in opposite order and both intervals exclude zero; undecided: chance explains it."
)


def rows_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return M@1 and MSeq of every row in the rendered world, per H, with the ceiling of the mean over H."""
    header = ("row", *horizons(cfg), "mean over H", "each seed", "takes", "ceiling")
    tables = []
    for metric in SHOWN_METRICS:
        lines: list[tuple[Cell, ...]] = []
        for row in rows_in_order(evidence, BASE):
            mean = reading(evidence, BASE, row, None, metric, cfg)
            top = "" if row.startswith(CEILING) else number(_ceiling(evidence, row, metric))
            cells = map(rate, per_horizon(evidence, BASE, row, None, metric, cfg))
            lines.append((name(row), *cells, rate(mean), seeds(mean, is_signed=False), takes(mean), top))
        tables.append(Table(f"{METRIC_NAMES[metric]} of every row in {BASE}, %", header, tuple(lines)))
    return tuple(tables)


def _ceiling(evidence: Evidence, row: str, metric: str) -> float:
    """Return the ceiling of a row of `base` over all H, averaged over the seeds; not a number where there is none."""
    wanted = (BASE, row, METRIC_NAMES[metric], None)
    found = [c.ceiling for p, c in evidence.ceilings if (p.world, c.variant, c.metric, c.horizon) == wanted]
    return sum(found) / len(found) if found else float("nan")


def controls_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return every row in the control worlds, and the leads over No-Traj there."""
    rows = in_order({row for world in CONTROL_WORLDS for row in rows_in_order(evidence, world) if CEILING not in row})
    header = ("row", *(f"{world} ({takes_of(evidence, world)} takes)" for world in CONTROL_WORLDS))
    tables = []
    for metric in SHOWN_METRICS:
        for reference, unit, shown in ((None, "%", rate), ("no_traj", "points over No-Traj", change)):
            lines = tuple(
                (name(row), *(shown(reading(evidence, w, row, reference, metric, cfg)) for w in CONTROL_WORLDS))
                for row in rows
                if row != reference
            )
            title = f"{METRIC_NAMES[metric]} in the control worlds, {unit}"
            tables.append(Table(title, header, lines, CONTROLS_NOTE))
    return tuple(tables)


def sweep_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the whole sweep."""
    header = ["style", "kappa", *(part for row in SWEEP_ROWS for part in (name(row), f"{name(row)}: ceiling"))]
    header += ["Endpoint-Traj − No-Traj", "Oracle − No-Traj", "takes"]
    tables = []
    for metric in SHOWN_METRICS:
        lines = []
        for world, (kappa, style) in sweep_worlds(cfg).items():
            levels = [
                rate(reading(evidence, world, prefix + row, None, metric, cfg))
                for row in SWEEP_ROWS
                for prefix in ("", CEILING)
            ]
            leads = [change(reading(evidence, world, row, "no_traj", metric, cfg)) for row in SWEEP_ROWS[1:]]
            lines.append((f"{style:g}", f"{kappa:g}", *levels, *leads, str(takes_of(evidence, world) or "")))
        title = f"The sweep over kappa and style, {METRIC_NAMES[metric]}, %"
        tables.append(Table(title, tuple(header), tuple(lines), "One seed, plain mean over H; ceilings are exact."))
    return tuple(tables)


def curve_rows() -> list[str]:
    """Return the rows of the learning curve: the main ones, and what a vote and an average get without learning."""
    return in_order({*with_role("main"), "knn_labels", "pool_mean"})


def sizes_of(cfg: ClaimsConfig) -> dict[str, int]:
    """Return world of the learning curve -> its training takes, rising."""
    sizes = {FEATURE_SPACE: cfg.frames_train_takes, **curve_worlds(cfg)}
    return dict(sorted(sizes.items(), key=lambda item: item[1]))


def takes_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return every row and its ceiling by the number of training takes, for the one seed of the learning curve."""
    sizes, one = sizes_of(cfg), cfg.replace(seeds=(cfg.sweep_seed,))
    header = ("row", *(f"{size} takes" for size in sizes.values()))
    return tuple(
        Table(
            f"{METRIC_NAMES[metric]} by training takes, %",
            header,
            tuple(
                (name(row), *(rate(reading(evidence, world, row, None, metric, one)) for world in sizes))
                for row in (*curve_rows(), *CURVE_BOUNDS)
            ),
            f"The settings of {FEATURE_SPACE}; one seed, plain mean over H; every size has test takes of its own.",
        )
        for metric in SHOWN_METRICS
    )


def entry_tables(compared: Sequence[EntryOrders]) -> tuple[Table, ...]:
    """Return the order of the rows through both entries, and the pairs that stand in opposite order."""
    return tuple(table for orders in compared for table in (_order(orders), _swaps(orders)) if table.rows)


def _order(orders: EntryOrders) -> Table:
    """Return the places of the rows in both orders."""
    base, other = orders.worlds
    by_other = sorted(orders.figures, key=lambda item: (-item[2].value, item[0]))
    rank = {row: str(place + 1) for place, (row, _, _) in enumerate(by_other)}
    lines = tuple(
        (str(place + 1), name(row), rate(here), rank[row], rate(there), f"{here.n_takes}, {there.n_takes}")
        for place, (row, here, there) in enumerate(orders.figures)
    )
    tau = "–" if orders.tau is None else number(orders.tau, 2)
    seeds_said = f"seed{'s' if len(orders.seeds) != 1 else ''} {', '.join(map(str, orders.seeds))}"
    said = f"Same order: {orders.verdict}; Kendall's tau {tau}; {len(orders.swaps)} pairs differ."
    title = f"Order of the rows in {base} and {other}, {METRIC_NAMES[orders.metric]}, {seeds_said}"
    header = ("place", "row", f"{base}, %", f"place in {other}", f"{other}, %", "takes")
    return Table(title, header, lines, " ".join(f"{said} {orders.gap} {ENTRY_NOTE}".split()))


def _swaps(orders: EntryOrders) -> Table:
    """Return the pairs of rows in opposite order."""
    base, other = orders.worlds
    lines = tuple(
        (
            f"{name(swap.row)} − {name(swap.reference)}",
            change(swap.by_video),
            change(swap.by_frames),
            "beyond chance" if swap.is_shown() else "within chance",
        )
        for swap in orders.swaps
    )
    title = f"Pairs in opposite order in {base} and {other}, {METRIC_NAMES[orders.metric]}"
    return Table(title, ("pair", f"{base}, points", f"{other}, points", "difference"), lines)
