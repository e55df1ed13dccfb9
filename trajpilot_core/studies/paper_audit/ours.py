"""Our runs in the simulated world where they speak to a statement; never in one table with published figures.

Statements on the gate and on the pool are answered by the tables of docs/scorer.md.
"""

import math
from collections.abc import Mapping

from schemas.claims import BASE, ClaimsConfig
from trajpilot_core.report.tables.table import Cell, Table, Value, over_horizons
from trajpilot_core.studies.claims import statistics
from trajpilot_core.studies.claims.readings import change, name, per_horizon, rate
from trajpilot_core.studies.claims.statistics import Estimate, estimate
from trajpilot_core.studies.claims.tables import Evidence

ROWS = ("no_traj", "scorer", "oracle")
Row = Mapping[int, Cell]
"""H -> figure; empty where it was not run."""


def our_tables(evidence: Evidence, cfg: ClaimsConfig) -> dict[int, Table]:
    """Return number of the statement -> our figures in the world `base`; a table without rows was not run."""

    def of(row: str, reference: str | None = None, metric: str = "m1") -> dict[int, Estimate]:
        found = per_horizon(evidence, BASE, row, reference, metric, cfg)
        return dict(zip(cfg.horizons, found, strict=False))

    gain, way, bound = of("scorer", "no_traj"), of("oracle", "no_traj"), of("scorer", "oracle")
    full, mid = ({row: of(row, None, metric) for row in ROWS} for metric in ("f1", "m1"))
    progress = _progress(evidence, cfg)
    share = {h: Value(gain[h].value / way[h].value, digits=2) for h in gain if h in way and way[h].value}
    rows: dict[int, dict[str, Row]] = {
        2: {"Scorer − No-Traj, M@1": _signed(gain), "Oracle − No-Traj, M@1": _signed(way), "recovered share": share},
        3: {"Scorer − Oracle, M@1": _signed(bound), "best of the pool − Oracle, M@1": _best(evidence, mid["oracle"])},
        11: {
            "monotone, %": {h: rate(figure) for h, figure in progress.items()},
            "random order, 100 / (H − 2)!": {h: Value(100 / math.factorial(h - 2), digits=2) for h in progress},
        },
        18: {
            f"{name(row)}, implied R@1 of Start and Goal": {
                h: Value((h * full[row][h].value - (h - 2) * mid[row][h].value) / 2) for h in full[row]
            }
            for row in ROWS
        },
    }
    return {number: over_horizons("", {of: row for of, row in held.items() if row}) for number, held in rows.items()}


def _signed(figures: Mapping[int, Estimate]) -> Row:
    return {h: change(figure) for h, figure in figures.items()}


def _progress(evidence: Evidence, cfg: ClaimsConfig) -> dict[int, Estimate]:
    """Return H -> share of true plans that approach the goal at every step."""
    held, n = evidence.goal_progress.get(BASE, {}), len(cfg.horizons)
    profile = statistics.profile(BASE, held, cfg) if held else None
    figures = [estimate(profile, statistics.only(n, at), cfg.confidence) for at in range(n)] if profile else []
    return dict(zip(cfg.horizons, figures, strict=False))


def _best(evidence: Evidence, oracle: Mapping[int, Estimate]) -> Row:
    """Return how far the best candidate of the largest pool lies above Oracle, means over the seeds."""
    pool = max((row.pool for _, row in evidence.headroom), default=0)
    best = {
        h: [r.oracle_m1 for p, r in evidence.headroom if (p.world, r.pool, r.horizon) == (BASE, pool, h)]
        for h in oracle
    }
    return {h: Value(sum(v) / len(v) - oracle[h].value, is_signed=True) for h, v in best.items() if v}
