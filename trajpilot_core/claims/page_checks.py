"""Sections of the claims page: ceilings, leak checks, distances, trainings, what was run, and what it cost."""

import math
from collections import defaultdict
from typing import NamedTuple

from schemas.claims import BASE, WORLDS, ClaimsConfig, sweep_worlds, world_seeds
from schemas.results import Ceiling, LeakCheck
from trajpilot_core.claims.contrasts import TRAINED
from trajpilot_core.claims.judge import Judged
from trajpilot_core.claims.markdown import name, number, picture, section, table, verdict
from trajpilot_core.claims.page_claims import geometry_rows
from trajpilot_core.claims.plots import Key, Panel, bare_line, keys_of, sheet
from trajpilot_core.claims.tables import Evidence
from trajpilot_core.evaluation.ceiling import ERRORS
from trajpilot_core.evaluation.paper_claims import model_of
from trajpilot_core.report.charts import Axes, line_chart
from trajpilot_core.report.figures import DEV_QUANTITIES
from trajpilot_core.report.names import in_order

CEILINGS_TEXT = """\
Exact inference on the world's own generative model, given what a row may see or more. A row above its ceiling by
more than three standard errors (paired by take, averaged over seeds, all H) is proof of a leak. Of each world the
cells that bind.
"""
LEAKS_TEXT = """\
Checks that nothing in a world, or in what was learned in it, gives an answer away; bounds and reasons:
`docs/decisions/claims-checks.md`. `value` and `bound` are those of the seed that comes nearest to the bound or
passes it.
"""
TRAINING_TEXT = """\
A model counts as trained where it beats two rows without a model on dev, and dev has not risen by over a point in
the last quarter of its epochs (`docs/decisions/training.md`). All rows have the same budget; the epoch is chosen on
dev.
"""
KNOBS = {
    BASE: "rendered video, the knobs of the claims",
    "drawn": "the same knobs, tables of features",
    "no_information": "kappa 0 and style 0: motion tells nothing",
    "no_style": "style 0: motion tells no intent",
    "no_scene": "scene 0: takes look alike; distances only",
}


class Bound(NamedTuple):
    """One row against its ceiling in one world, averaged over its seeds."""

    world: str
    row: str
    metric: str
    value: float
    ceiling: float
    difference: float
    error: float
    n_takes: int
    n_seeds: int

    def verdict(self) -> str:
        """Return `holds` where the row lies below its ceiling by the rule; without a standard error it is not run."""
        if not math.isfinite(self.error):
            return "not run"
        return "fails" if self.difference > ERRORS * self.error else "holds"


def ceiling_bounds(evidence: Evidence) -> list[Bound]:
    """Average the binding cells over the seeds of each world; standard errors of independent worlds add in squares."""
    grouped: dict[tuple[str, str, str], list[Ceiling]] = defaultdict(list)
    for place, ceiling in evidence.ceilings:
        if ceiling.horizon is None and ceiling.binding:
            grouped[place.world, ceiling.variant, ceiling.metric].append(ceiling)
    order = {row: index for index, row in enumerate(in_order({row for _, row, _ in grouped}))}
    worlds = {world: index for index, world in enumerate(WORLDS)}
    keys = sorted(grouped, key=lambda key: (worlds.get(key[0], len(worlds)), key[0], order[key[1]], key[2]))
    return [_bound(*key, grouped[key]) for key in keys]


def _bound(world: str, row: str, metric: str, cells: list[Ceiling]) -> Bound:
    """Average one cell over its seeds."""
    n = len(cells)
    value, ceiling = sum(c.value for c in cells) / n, sum(c.ceiling for c in cells) / n
    error = math.sqrt(sum(c.standard_error**2 for c in cells)) / n
    return Bound(world, row, metric, value, ceiling, value - ceiling, error, sum(c.n_takes for c in cells), n)


def ceilings_section(evidence: Evidence) -> str:
    """Return every binding cell of the worlds of the claims, and those of the sweep that fail."""
    bounds = ceiling_bounds(evidence)
    verdicts = {bound.verdict() for bound in bounds}
    told = next((found for found in ("fails", "not run") if found in verdicts), "holds") if bounds else "not run"
    shown = [bound for bound in bounds if bound.world in WORLDS or bound.verdict() != "holds"]
    left_out = len(bounds) - len(shown)
    lines = [
        [b.world, name(b.row), b.metric, number(b.value), number(b.ceiling), number(b.difference, signed=True),
         number(b.error, 2), str(b.n_seeds), str(b.n_takes), verdict(b.verdict())]
        for b in shown
    ]  # fmt: skip
    header = [
        "world",
        "row",
        "metric",
        "row, %",
        "ceiling, %",
        "difference",
        "standard error",
        "seeds",
        "takes",
        "below",
    ]
    return section(
        "Ceilings",
        CEILINGS_TEXT,
        f"Every row lies below its ceiling: {verdict(told)} ({len(bounds)} cells"
        + (f"; {left_out} of the sweep hold and are not listed)." if left_out else ")."),
        table(header, lines),
    )


def leaks_section(evidence: Evidence) -> str:
    """Return the leak checks, a line per check, worst seed shown."""
    grouped: dict[str, list[tuple[str, LeakCheck]]] = defaultdict(list)
    for place, check in evidence.leaks:
        grouped[check.check].append((f"{place.world} {place.seed}", check))
    lines = []
    for title, found in grouped.items():
        where, worst = min(found, key=lambda item: (_SEVERITY[item[1].verdict], _room(item[1])))
        bound = "" if worst.bound is None else f"{worst.bound:.4g}"
        lines.append([title, str(len(found)), verdict(worst.verdict), f"{worst.value:.4g}", bound, where, worst.detail])
    failed = sum(check.verdict == "fails" for _, check in evidence.leaks)
    told = "not run" if not evidence.leaks else f"{len(evidence.leaks)} checks, {failed} fail"
    header = ["check", "worlds", "verdict", "value", "bound", "where", "detail"]
    return section("Leak checks", LEAKS_TEXT, f"**{told}.**", table(header, lines))


_SEVERITY = {"fails": 0, "not run": 1, "holds": 2}


def _room(check: LeakCheck) -> float:
    """Return how far a value is from its bound, either way."""
    return math.inf if check.bound is None else abs(check.bound - check.value)


def geometry_section(judged: tuple[Judged, ...]) -> str:
    """Return the differences between neighbouring mean distances."""
    header = ["world", "difference of mean distances", "figure [95 %]", "each seed", "takes"]
    return section("Distances between segments", table(header, geometry_rows(judged)), level=3)


def training_section(evidence: Evidence) -> str:
    """Return which models are trained, and their learning curves."""
    grouped: dict[tuple[str, str], list[tuple[int, str, str]]] = defaultdict(list)
    for place, judgement in evidence.judgements:
        if judgement.check.startswith(TRAINED):
            chain = judgement.check.removeprefix(TRAINED).split(",")[0]
            grouped[place.world, chain].append((place.seed, judgement.verdict, judgement.detail))
    lines = [
        [world, chain, _trained(found), "; ".join(f"seed {seed}: {detail}" for seed, _, detail in sorted(found))]
        for (world, chain), found in grouped.items()
        if world == BASE or any(told != "holds" for _, told, _ in found)
    ]
    n_models = sum(len(found) for found in grouped.values())
    n_weak = sum(told != "holds" for found in grouped.values() for _, told, _ in found)
    return section(
        "Appendix: trainings and their learning curves",
        TRAINING_TEXT,
        f"{n_models} models judged, {n_weak} not trained. Listed: those of `{BASE}`, and others where one is not.",
        table(["world", "model", "verdict", "dev"], lines),
        picture("curves.svg", "Dev score by epoch, rendered world"),
    )


def _trained(found: list[tuple[int, str, str]]) -> str:
    """Say how many seeds of a model are trained."""
    good = sum(told == "holds" for _, told, _ in found)
    return "trained" if good == len(found) else f"**UNDERTRAINED** ({len(found) - good} of {len(found)})"


def curves_picture(evidence: Evidence) -> bytes:
    """Draw the dev score that selects the epoch, for chain `final` in the rendered world, a line per seed."""
    rows = [
        (place.seed, point)
        for place, point in evidence.curves
        if place.world == BASE and point.model.startswith("final/") and point.split == "dev" and point.epoch > 0
    ]
    panels: list[Panel] = []
    keys: list[Key] = []
    for model in sorted({point.model for _, point in rows}):
        own = [(seed, point) for seed, point in rows if point.model == model]
        chosen = next((q for q in DEV_QUANTITIES if any(point.quantity == q for _, point in own)), None)
        series = [
            bare_line(
                f"seed {seed}",
                f"seed{seed % 3}",
                sorted((float(p.epoch), 100 * p.value) for s, p in own if (s, p.quantity) == (seed, chosen)),
            )
            for seed in sorted({seed for seed, _ in own})
        ]
        last = max(point.epoch for _, point in own)
        ticks = tuple(float(epoch) for epoch in _ticks(last))
        title = f"{name(model_of(model))}: dev {chosen}"
        panels.append(Panel(title, line_chart(Axes(title, "epoch", f"dev {chosen}, %", ticks), series)))
        keys = keys_of(series)
    return sheet(panels or [Panel("learning curves", line_chart(Axes("", "", "", ()), []))], keys)


def _ticks(last: int) -> range:
    """Return about five epochs."""
    step = max(1, round(last / 5))
    return range(step, last + 1, step)


def run_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return what was run, in which world, on how many takes, and what was not."""
    lines = [_world_line(evidence, world, KNOBS[world], cfg) for world in WORLDS]
    sweep = sweep_worlds(cfg)
    lines += [_world_line(evidence, world, f"kappa {k:g}, style {s:g}", cfg) for world, (k, s) in sweep.items()]
    blocks = [table(["world", "what it is", "seeds planned", "seeds scored", "test takes", "jobs"], lines)]
    jobs = evidence.run.jobs if evidence.run else ()
    left = [[job.world, str(job.seed), job.job, job.status, job.note] for job in jobs if job.status != "done"]
    if left:
        blocks += ["Jobs that were not run or failed:", table(["world", "seed", "job", "status", "why"], left)]
    if evidence.absent:
        blocks.append(f"Files that are not there: {', '.join(f'`{file}`' for file in evidence.absent)}.")
    return section("What was run, and what was not", *blocks)


def _world_line(evidence: Evidence, world: str, what: str, cfg: ClaimsConfig) -> list[str]:
    """Return one world of the table of runs."""
    held = evidence.scores.get(world, {})
    seeds = sorted(held) or sorted(evidence.geometry.get(world, {}))
    takes = ", ".join(str(len(held[seed].takes)) for seed in sorted(held))
    counts = {status: 0 for status in ("done", "not run", "failed")}
    for job in evidence.run.jobs if evidence.run else ():
        if job.world == world:
            counts[job.status] += 1
    told = ", ".join(f"{n} {status}" for status, n in counts.items() if n)
    planned = ", ".join(map(str, world_seeds(cfg, world)))
    return [f"`{world}`", what, planned, ", ".join(map(str, seeds)) or "**not run**", takes, told]


def cost_section(evidence: Evidence) -> str:
    """Return the wall time of the jobs by world."""
    spent: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for job in evidence.run.jobs if evidence.run else ():
        if job.seconds is not None:
            spent[job.world][job.job.split("/")[0]] += job.seconds
    kinds = sorted({kind for by_kind in spent.values() for kind in by_kind})
    lines = [
        [world, *(number(by_kind.get(kind, 0.0) / 60) for kind in kinds), number(sum(by_kind.values()) / 60)]
        for world, by_kind in spent.items()
    ]
    total = sum(sum(by_kind.values()) for by_kind in spent.values())
    lead = f"Wall time in minutes, summed over seeds, {number(total / 3600)} hours in all" if spent else "No times."
    where = f" ({evidence.run.machine}, {evidence.run.device.upper()})." if evidence.run and spent else ""
    return section("Cost", lead + where, table(["world", *kinds, "sum"], lines))
