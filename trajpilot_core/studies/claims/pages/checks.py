"""Tables of what could leak an answer, of what the evaluation checks of itself, and of models not trained."""

import math
from collections import defaultdict

from schemas.claims import BASE, ClaimsConfig, full_worlds, world_seeds
from schemas.results import Judgement, LeakCheck
from trajpilot_core.report.tables.table import NOTHING, Table
from trajpilot_core.studies.claims.evidence.contrasts import TRAINED
from trajpilot_core.studies.claims.evidence.tables import Evidence, Origin

GROUPS = {
    "identity: ": "identities of the metrics and of the gate",
    "leak: ": "leaks that the tables show",
    "ceiling: ": "rows against their ceilings, seed by seed, and the ceilings against themselves",
}
"""How the names of these checks begin, and what they are."""
VERDICTS = ("holds", "fails", "undecided", "not run")
SEVERITY = {"fails": 0, "not run": 1, "holds": 2}


def planned_origins(cfg: ClaimsConfig) -> list[Origin]:
    """Return the worlds and seeds that are scored on every row."""
    return [Origin(world, seed) for world in full_worlds() for seed in world_seeds(cfg, world)]


def named(origins: list[Origin]) -> str:
    """Return worlds with their seeds in words."""
    seeds: dict[str, list[str]] = defaultdict(list)
    for origin in origins:
        seeds[origin.world].append(str(origin.seed))
    return ", ".join(f"{world} seed {', '.join(found)}" for world, found in seeds.items())


def leaks_verdict(evidence: Evidence, cfg: ClaimsConfig) -> str:
    """Return the verdict over all leak checks; a planned world that has none, or an idle check, speaks against it."""
    held = {origin for origin, _ in evidence.leaks}
    absent = [origin for origin in planned_origins(cfg) if origin not in held]
    idle = sum(check.verdict == NOTHING for _, check in evidence.leaks)
    failed = sum(check.verdict == "fails" for _, check in evidence.leaks)
    verdict = "fails" if failed else NOTHING if absent or idle else "holds"
    n = f"{len(evidence.leaks)} checks in {len(held)} worlds and seeds, {failed} fail, {idle} not run"
    return f"No leak found: {verdict} ({n}{f'; {len(absent)} worlds and seeds have none' if absent else ''})"


def checks_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return the leak checks and the checks that the evaluation makes of itself."""
    return (*leaks_tables(evidence, cfg), *self_checks_tables(evidence, cfg))


def leaks_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return a line per leak check, of the seed that comes nearest to the bound, and the checks that were not run."""
    grouped: dict[str, list[tuple[Origin, LeakCheck]]] = defaultdict(list)
    for origin, check in evidence.leaks:
        grouped[check.check].append((origin, check))
    rows = []
    for title, found in grouped.items():
        where, worst = min(found, key=lambda item: (SEVERITY[item[1].verdict], _room(item[1])))
        bound = "" if worst.bound is None else f"{worst.bound:.4g}"
        value = "" if worst.verdict == NOTHING else f"{worst.value:.4g}"
        rows.append((title, str(len(found)), worst.verdict, value, bound, _at(where), worst.detail))
    header = ("check", "worlds", "verdict", "value", "bound", "where", "detail")
    idle = tuple((_at(origin), c.check, c.detail) for origin, c in evidence.leaks if c.verdict == NOTHING)
    held = {origin for origin, _ in evidence.leaks}
    absent = named([origin for origin in planned_origins(cfg) if origin not in held])
    missing = f" Without any leak check: {absent}." if absent else ""
    note = f"{leaks_verdict(evidence, cfg)}.{missing} Bounds and reasons: docs/decisions/claims-checks.md."
    not_run = Table("Leak checks that were not run", ("where", "check", "why"), idle)
    return (Table("Leak checks", header, tuple(rows), note), *([not_run] if idle else []))


def _at(origin: Origin) -> str:
    return f"{origin.world} {origin.seed}"


def _room(check: LeakCheck) -> float:
    """Return how far a value is from its bound, either way."""
    return math.inf if check.bound is None else abs(check.bound - check.value)


def self_checks_tables(evidence: Evidence, cfg: ClaimsConfig) -> tuple[Table, ...]:
    """Return how many of the evaluation's own checks hold, and every one that does not."""
    grouped = {what: _of_group(evidence, start) for start, what in GROUPS.items()}
    counts = tuple((what, *_counts(found, cfg)) for what, found in grouped.items())
    bad = tuple(
        (_at(origin), row.check, row.verdict, row.detail)
        for found in grouped.values()
        for origin, row in found
        if row.verdict != "holds"
    )
    return (
        Table("What the evaluation checks of itself", ("checks", *VERDICTS, "worlds and seeds without"), counts),
        Table("Checks of the evaluation that do not hold", ("where", "check", "verdict", "detail"), bad),
    )


def _of_group(evidence: Evidence, start: str) -> list[tuple[Origin, Judgement]]:
    """Return the judgements whose names begin so."""
    return [(origin, row) for origin, row in evidence.judgements if row.check.startswith(start)]


def _counts(found: list[tuple[Origin, Judgement]], cfg: ClaimsConfig) -> list[str]:
    """Count the verdicts of a group, and name the planned worlds that have none of its checks."""
    held = {origin for origin, _ in found}
    absent = [origin for origin in planned_origins(cfg) if origin not in held]
    return [*(str(sum(row.verdict == word for _, row in found)) for word in VERDICTS), named(absent)]


def trainings_table(evidence: Evidence) -> Table:
    """Return which models are trained: those of `base`, and others where one is not."""
    grouped: dict[tuple[str, str], list[tuple[int, str, str]]] = defaultdict(list)
    for origin, row in _of_group(evidence, TRAINED):
        chain = row.check.removeprefix(TRAINED).split(",")[0]
        grouped[origin.world, chain].append((origin.seed, row.verdict, row.detail))
    weak = {key: sum(verdict != "holds" for _, verdict, _ in found) for key, found in grouped.items()}
    rows = tuple(
        (
            *key,
            f"UNDERTRAINED ({weak[key]} of {len(found)})" if weak[key] else "trained",
            "; ".join(f"seed {seed}: {detail}" for seed, _, detail in sorted(found)),
        )
        for key, found in grouped.items()
        if key[0] == BASE or weak[key]
    )
    note = f"{sum(weak.values())} of {sum(map(len, grouped.values()))} models are undertrained."
    return Table("Trainings", ("world", "model", "verdict", "dev"), rows, note)
