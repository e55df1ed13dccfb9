"""docs/comparison.md: a committed page whose blocks are a function of the committed tables alone.

What was not run is printed as not run; a miss is printed as a miss.
"""

from collections.abc import Sequence
from pathlib import Path

from schemas.claims import BASE, ClaimsConfig
from schemas.comparison import PUBLISHED, PlannerCost, PlannerWorldsConfig, WorldPart
from schemas.planners import PLANNERS
from trajpilot_core.report.blocks import renewed
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value, number
from trajpilot_core.studies.claims.evidence.readings import (
    change,
    horizons,
    name,
    per_horizon,
    rate,
    reading,
    rows_in_order,
    seeds,
    takes,
)
from trajpilot_core.studies.claims.pages.drawings import picture
from trajpilot_core.studies.claims.pages.run import when
from trajpilot_core.studies.claims.verdicts.judge import Judged
from trajpilot_core.studies.paper_tables.labels import CLOSED_LABELS, tables_of
from trajpilot_core.studies.paper_tables.write import read_tables
from trajpilot_core.studies.planner_worlds.drawings import drawings_of
from trajpilot_core.studies.planner_worlds.stages import PLANNERS_STAGE
from trajpilot_core.studies.planner_worlds.tables import FOLDER, PartTables, read_part
from trajpilot_core.studies.planner_worlds.verdicts import Reached, judge_collapse, reached, trained_word
from trajpilot_core.studies.planner_worlds.worlds import planned

NAME = "comparison.md"
BENCHMARKS = "benchmarks"
"""Folder of the cells that `trajpilot paper` writes."""
NOT_TIMED = "not timed"
SHOWN = ("SR", "Full mAcc", "mIoU", "ED")
"""Metrics of the planners' papers that are printed, mean over H."""


def render_comparison(docs: Path, claims: ClaimsConfig | None = None) -> dict[str, bytes]:
    """Render the page and its pictures.

    Args:
        docs: folder of the documentation, which holds the page; tables lie in its folder `comparison`.
        claims: None: as the claims were fixed.

    Returns:
        Path below docs -> bytes; equal tables give equal bytes.

    Raises:
        InputError: a table contradicts itself, or the page lacks a block.
        StoreError: a damaged table.
    """
    cfg, claims = PlannerWorldsConfig(), claims or ClaimsConfig()
    parts = {part: read_part(docs / FOLDER / part, cfg.horizons) for part in PUBLISHED}
    blocks: dict[str, str] = {}
    for part, tables in parts.items():
        blocks |= blocks_of(part, tables, of_part(part, cfg, claims), cfg)
    judged = judge_collapse(parts["claims"].evidence, cfg, claims)
    blocks["collapse"] = collapse_table(judged).markdown(is_titled=False)
    met = reached(parts["deterministic"].evidence, cfg.horizons, cfg.within)
    found = tables_of(read_tables(docs / FOLDER / BENCHMARKS), CLOSED_LABELS)
    blocks |= {label: table.markdown(is_titled=False) for label, table in found.items()}
    blocks["reached"] = reached_table(met, parts["deterministic"], cfg).markdown(is_titled=False)
    page = renewed((docs / NAME).read_text(encoding="utf-8"), blocks, NAME).encode()
    drawn = {
        part: drawings_of(tables.evidence, world_of(part), of_part(part, cfg, claims)) for part, tables in parts.items()
    }
    return {NAME: page, **{f"{FOLDER}/{part}.svg": picture(held) for part, held in drawn.items() if held}}


def world_of(part: WorldPart) -> str:
    """Return the world of a part, as its tables call it."""
    return BASE if part == "claims" else part


def of_part(part: WorldPart, cfg: PlannerWorldsConfig, claims: ClaimsConfig) -> ClaimsConfig:
    """Return the settings with which the tables of a part are read: its horizons and its seeds."""
    return claims.replace(horizons=cfg.horizons, single_seed=planned(part, cfg, claims).worlds[0].seed)


def blocks_of(part: WorldPart, tables: PartTables, of: ClaimsConfig, cfg: PlannerWorldsConfig) -> dict[str, str]:
    """Return the blocks that every part has."""
    return {
        f"{part} run": f"Run: {when(tables.evidence.run)}.{jobs_text(tables)}",
        f"{part} rows": rows_table(tables, world_of(part), of).markdown(is_titled=False),
        f"{part} metrics": metrics_table(tables, world_of(part)).markdown(is_titled=False),
        f"{part} costs": costs_table(part, tables, cfg).markdown(is_titled=False),
    }


def jobs_text(tables: PartTables) -> str:
    """State the wall seconds of the other jobs, seed by seed; nothing where nothing was run."""
    run, spent = tables.evidence.run, dict[str, list[str]]()
    for job in run.jobs if run is not None else ():
        if job.job != PLANNERS_STAGE:
            spent.setdefault(job.job, []).append(NOT_TIMED if job.seconds is None else number(job.seconds, 0))
    listed = "; ".join(f"{job} {', '.join(seconds)}" for job, seconds in spent.items())
    return f" Wall seconds of the other stages: {listed}." if listed else ""


def rows_table(tables: PartTables, world: str, of: ClaimsConfig) -> Table:
    """Return M@1 of every row of a world at each H, with MSeq in the mean; ceilings last."""
    lines: list[tuple[Cell, ...]] = []
    for row in rows_in_order(tables.evidence, world):
        mean = reading(tables.evidence, world, row, None, "m1", of)
        at_each = map(rate, per_horizon(tables.evidence, world, row, None, "m1", of))
        exact = rate(reading(tables.evidence, world, row, None, "mseq", of))
        lines.append((name(row), *at_each, rate(mean), exact, seeds(mean, is_signed=False), takes(mean)))
    header = ("row", *(f"M@1, {h}" for h in horizons(of)), "M@1, mean", "MSeq, mean", "M@1, each seed", "takes")
    return Table("Rows", header, tuple(lines))


def metrics_table(tables: PartTables, world: str) -> Table:
    """Return further metrics of every row, plain mean over H, then over the seeds; intervals are in the table."""
    found: dict[tuple[str, str], list[float]] = {}
    for origin, row in tables.metrics:
        if origin.world == world and row.pooling == "plain":
            found.setdefault((row.variant, row.metric), []).append(row.value)
    variants = [row for row in rows_in_order(tables.evidence, world) if any((row, metric) in found for metric in SHOWN)]
    lines = tuple(
        (name(row), *(Value(sum(held) / len(held)) if (held := found.get((row, m))) else NOTHING for m in SHOWN))
        for row in variants
    )
    return Table("Further metrics", ("row", *SHOWN), lines)


def costs_table(part: WorldPart, tables: PartTables, cfg: PlannerWorldsConfig) -> Table:
    """Return the thread-minutes of every planner against its cap, and its epochs; over the cap is said.

    A sum is that of the most expensive seed.
    """
    lines: list[tuple[Cell, ...]] = []
    for method in PLANNERS:
        held = [cost for cost in tables.costs if cost.method == method]
        if not held:
            continue
        by_seed = [[cost.thread_s for cost in held if cost.seed == seed] for seed in {cost.seed for cost in held}]
        sums = [sum(s for s in spent if s is not None) for spent in by_seed]
        is_timed = all(cost.thread_s is not None for cost in held)
        at_least = "" if all(cost.is_whole for cost in held) else "at least "
        over = "over the cap" if max(sums) > cfg.cap_s(part) else "within"
        lines.append(
            (
                name(method),
                *(_epochs(tables, f"final/{method}_h{horizon}") for horizon in cfg.horizons),
                *(_minutes([cost for cost in held if cost.horizon == horizon]) for horizon in cfg.horizons),
                f"{at_least}{number(max(sums) / 60)}" if is_timed else NOTHING,
                number(cfg.cap_s(part) / 60),
                over if is_timed else "",
                trained_word(tables.evidence, method),
            )
        )
    epochs = (f"epochs (best), H={horizon}" for horizon in cfg.horizons)
    spent = (f"thread-minutes, H={horizon}" for horizon in cfg.horizons)
    return Table("Trainings", ("planner", *epochs, *spent, "sum", "cap", "", "trained (D 51)"), tuple(lines))


def _minutes(costs: Sequence[PlannerCost]) -> str:
    """Return the thread-minutes of one planner at one horizon, seed by seed."""
    return ", ".join(NOTHING if cost.thread_s is None else number(cost.thread_s / 60) for cost in costs)


def _epochs(tables: PartTables, model: str) -> str:
    """Return how many epochs ran, and the one that dev chose, of the first seed."""
    rows = [point for _, point in tables.evidence.curves if (point.model, point.split) == (model, "dev")]
    own = [point for point in rows if point.quantity == "Mid mAcc" and point.seed == min(p.seed for p in rows)]
    if not own:
        return NOTHING
    best = max(own, key=lambda point: (point.value, -point.epoch))
    return f"{max(point.epoch for point in own)} ({best.epoch})"


def reached_table(found: tuple[Reached, ...], tables: PartTables, cfg: PlannerWorldsConfig) -> Table:
    """Return every planner against its ceiling at every horizon; without figures nothing was run."""
    lines = tuple(
        (
            name(one.method),
            f"{one.horizon}",
            Value(one.value),
            Value(one.ceiling),
            f"{number(one.value - one.ceiling, is_signed=True)} ± {number(one.error)}",
            trained_word(tables.evidence, f"{one.method}_h{one.horizon}"),
            one.word,
        )
        for one in found
        if one.word != NOTHING
    )
    within = f"within {cfg.within:g} points"
    return Table("Ceilings", ("planner", "H", "M@1", "ceiling", "difference ± SE", "trained (D 51)", within), lines)


def collapse_table(judged: tuple[Judged, ...]) -> Table:
    """Return every statement of the claim with its figure and verdict."""
    lines: list[tuple[Cell, ...]] = []
    for row in judged:
        lines += [
            (f.statement.text, change(f.headline, 2), f.unit, seeds(f.headline, 2), f.verdict, f.note)
            for f in row.findings
        ]
        lines.append((f"**{row.claim.text}**", "", "", "", row.verdict("claim") or "", row.claim.no_control))
    return Table("The claim on H", ("statement", "figure", "unit", "each seed", "verdict", "note"), tuple(lines))
