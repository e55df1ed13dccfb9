"""Charts of the planners of other papers: M@1 over the horizon, and the dev score of each training."""

from collections import defaultdict

from schemas.claims import ClaimsConfig
from schemas.planners import PLANNERS
from trajpilot_core.report.drawing.charts import Axes
from trajpilot_core.studies.claims.evidence.readings import name, per_horizon
from trajpilot_core.studies.claims.evidence.tables import Evidence
from trajpilot_core.studies.claims.pages.drawings import STEPS, Drawing, bare, lines
from trajpilot_core.studies.planner_worlds.verdicts import BOUND

ROWS = (*PLANNERS, "no_traj", "oracle", BOUND)
QUANTITY = "Mid mAcc"
SHARES = (0.0, 25.0, 50.0, 75.0, 100.0)


def drawings_of(evidence: Evidence, world: str, cfg: ClaimsConfig) -> list[Drawing]:
    """Draw the rows of one world over H, then the trainings of every horizon; nothing where nothing was run.

    Args:
        evidence: the tables of a part.
        world: its world.
        cfg: horizons and seeds of the part.
    """
    if world not in evidence.scores:
        return []
    read = {row: zip(cfg.horizons, per_horizon(evidence, world, row, None, "m1", cfg), strict=False) for row in ROWS}
    ticks = tuple(float(horizon) for horizon in cfg.horizons)
    found = [Drawing("rows", Axes("M@1 over the horizon", STEPS, "M@1, %", ticks), lines(read))]
    for horizon in cfg.horizons:
        series = tuple(
            bare(name(method), method, points, "none")
            for method in PLANNERS
            if (points := dev_curve(evidence, f"final/{method}_h{horizon}"))
        )
        axes = Axes(f"Training, H={horizon}: dev {QUANTITY}", "epochs, %", f"dev {QUANTITY}, %", SHARES)
        found += [Drawing("trainings", axes, series)] if series else []
    return found


def dev_curve(evidence: Evidence, model: str) -> list[tuple[float, float]]:
    """Return (percent of the epochs, dev score in percent) of a model, the score averaged over its seeds."""
    held: dict[int, list[float]] = defaultdict(list)
    for _, point in evidence.curves:
        if (point.model, point.split, point.quantity) == (model, "dev", QUANTITY):
            held[point.epoch].append(100 * point.value)
    last = max(held, default=1)
    return [(100 * epoch / last, sum(values) / len(values)) for epoch, values in sorted(held.items())]
