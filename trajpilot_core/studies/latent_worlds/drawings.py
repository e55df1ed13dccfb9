"""The two figures of the paper on planning in latents, in simulated worlds: SR, and Full mAcc, over the horizon."""

import math

from schemas.latent_worlds import BASE, STRAIGHT, LatentWorldsConfig
from trajpilot_core.methods.latent import CEM, CEM_BANK, NO_TRAJ, ORACLE
from trajpilot_core.report.drawing.charts import Axes, Point, Series
from trajpilot_core.report.drawing.row_styles import mark_of
from trajpilot_core.studies.claims.evidence.readings import name
from trajpilot_core.studies.claims.pages.drawings import STEPS, Drawing
from trajpilot_core.studies.latent_worlds.tables import LatentTables

ROWS = (NO_TRAJ.id, ORACLE.id, CEM.id, CEM_BANK.id)
FIGURES = {"cem_vs_none": "SR", "cem_full_mean": "Full mAcc"}
"""Label of the paper's figure -> metric."""
SHOWN = (BASE, STRAIGHT)


def drawings_of(tables: LatentTables, metric: str, cfg: LatentWorldsConfig) -> list[Drawing]:
    """Draw a metric over H, a chart for the informative world and one for the straight one; none that was not run."""
    ticks = tuple(float(horizon) for horizon in cfg.horizons)
    found = []
    for world in SHOWN:
        series = tuple(one for row in ROWS if (one := line(tables, world, row, metric, cfg)).points)
        axes = Axes(f"{metric} over the horizon, {world}", STEPS, f"{metric}, %", ticks)
        found += [Drawing(world, axes, series)] if series else []
    return found


def line(tables: LatentTables, world: str, row: str, metric: str, cfg: LatentWorldsConfig) -> Series:
    """Return the line of one row of a world, with its intervals over takes."""
    held = {
        one.horizon: one
        for at, one in tables.metrics
        if (at.world, at.seed, one.variant, one.metric) == (world, cfg.seed, row, metric) and one.horizon is not None
    }
    points = tuple(
        Point(float(h), one.value, *ends, has_interval=is_known)
        for h in cfg.horizons
        if (one := held.get(h)) is not None
        for is_known in (math.isfinite(one.low) and math.isfinite(one.high),)
        for ends in ((one.low, one.high) if is_known else (one.value, one.value),)
    )
    return Series(name(row), row, points, mark_of(row))
