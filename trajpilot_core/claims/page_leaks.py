"""Sections of the claims page: what could give an answer away, and what the evaluation found out about itself."""

import math
from collections import defaultdict

from schemas.claims import ClaimsConfig, full_worlds, world_seeds
from schemas.results import Judgement, LeakCheck
from trajpilot_core.claims.markdown import section, table, verdict
from trajpilot_core.claims.tables import Evidence, Placed

LEAKS_TEXT = """\
Checks that nothing in a world, or in what was learned in it, gives an answer away; bounds and reasons:
`docs/decisions/claims-checks.md`. `value` and `bound` are those of the seed that comes nearest to the bound or
passes it. They run in every world that is scored on every row; points of the sweep that no control stands for are
scored on three rows, and have none.
"""
SELF_TEXT = """\
What the evaluation of every world checks of its own tables (`docs/decisions/metrics.md`, `ceiling.md`), in each seed.
Every line that does not hold is printed. What it says of single claims is not: the claims are judged above, over all
seeds.
"""
GROUPS = {
    "identity: ": "identities of the metrics and of the gate",
    "leak: ": "leaks that the tables show",
    "ceiling: ": "rows against their ceilings, seed by seed, and the ceilings against themselves",
}
"""How the names of these checks begin, and what they are."""
VERDICTS = ("holds", "fails", "undecided", "not run")
SEVERITY = {"fails": 0, "not run": 1, "holds": 2}


def planned_places(cfg: ClaimsConfig) -> list[Placed]:
    """Return the worlds and seeds that are scored on every row."""
    return [Placed(world, seed) for world in full_worlds(cfg) for seed in world_seeds(cfg, world)]


def named(places: list[Placed]) -> str:
    """Return worlds with their seeds in words."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for place in places:
        seeds[place.world].append(str(place.seed))
    return ", ".join(f"`{world}` seed {', '.join(found)}" for world, found in seeds.items())


def leaks_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the leak checks, a line per check, worst seed shown, and the worlds that have none."""
    grouped: dict[str, list[tuple[str, LeakCheck]]] = defaultdict(list)
    for place, check in evidence.leaks:
        grouped[check.check].append((f"{place.world} {place.seed}", check))
    lines = []
    for title, found in grouped.items():
        where, worst = min(found, key=lambda item: (SEVERITY[item[1].verdict], _room(item[1])))
        bound = "" if worst.bound is None else f"{worst.bound:.4g}"
        value = "" if worst.verdict == "not run" else f"{worst.value:.4g}"
        lines.append([title, str(len(found)), verdict(worst.verdict), value, bound, where, worst.detail])
    header = ["check", "worlds", "verdict", "value", "bound", "where", "detail"]
    return section("Leak checks", LEAKS_TEXT, *_leaks_summary(evidence, cfg), table(header, lines))


def _leaks_summary(evidence: Evidence, cfg: ClaimsConfig) -> list[str]:
    """Count the checks, and name the planned worlds that have none and those checks that were not run."""
    held = {place for place, _ in evidence.leaks}
    absent = [place for place in planned_places(cfg) if place not in held]
    idle = [(place, check) for place, check in evidence.leaks if check.verdict == "not run"]
    failed = sum(check.verdict == "fails" for _, check in evidence.leaks)
    told = "fails" if failed else "not run" if absent or idle else "holds"
    n = f"{len(evidence.leaks)} checks in {len(held)} worlds and seeds, {failed} fail, {len(idle)} not run"
    blocks = [f"Nothing is given away: {verdict(told)} ({n})."]
    if absent:
        blocks.append(f"**Without any leak check**: {named(absent)}.")
    if idle:
        lines = [[f"{place.world} {place.seed}", check.check, check.detail] for place, check in idle]
        blocks.append(table(["where", "check that was not run", "why"], lines))
    return blocks


def _room(check: LeakCheck) -> float:
    """Return how far a value is from its bound, either way."""
    return math.inf if check.bound is None else abs(check.bound - check.value)


def self_checks_section(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return how many of the evaluation's own checks hold, and every line of those that do not."""
    grouped = {start: _of_group(evidence, start) for start in GROUPS}
    lines = [[what, *_counts(grouped[start], cfg)] for start, what in GROUPS.items()]
    bad = [
        [f"{place.world} {place.seed}", row.check, verdict(row.verdict), row.detail]
        for found in grouped.values()
        for place, row in found
        if row.verdict != "holds"
    ]
    header = ["checks", *VERDICTS, "worlds and seeds without"]
    shown = [table(["where", "check", "verdict", "detail"], bad)] if bad else []
    return section("What the evaluation checks of itself", SELF_TEXT, table(header, lines), *shown)


def _of_group(evidence: Evidence, start: str) -> list[tuple[Placed, Judgement]]:
    """Return the judgements whose names begin so."""
    return [(place, row) for place, row in evidence.judgements if row.check.startswith(start)]


def _counts(found: list[tuple[Placed, Judgement]], cfg: ClaimsConfig) -> list[str]:
    """Count the verdicts of a group, and name the planned worlds that have none of its checks."""
    held = {place for place, _ in found}
    absent = [place for place in planned_places(cfg) if place not in held]
    return [*(str(sum(row.verdict == word for _, row in found)) for word in VERDICTS), named(absent)]
