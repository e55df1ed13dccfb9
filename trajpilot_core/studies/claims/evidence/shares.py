"""How much of what its world allows a row has reached: the share of the way from Majority to its exact ceiling."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from schemas.claims import ClaimsConfig, VerdictConfig
from trajpilot_core.methods import METHODS, method
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import contrast, models_of
from trajpilot_core.studies.claims.evidence.statistics import Estimate
from trajpilot_core.studies.claims.evidence.tables import CEILING, Evidence

FLOOR = "majority"
SHARES_KEPT = 512
OWN_ROWS = {"traj": "oracle"}
"""Model -> the row that it answers by itself, where they are not called the same."""
RANKED = "scorer"
"""Falls back on No-Traj, so that its score says nothing of its ranking: it and its parts have no share of their own."""


class ReachedShare(NamedTuple):
    """The share of one row, M@1, plain mean over H, averaged over the seeds."""

    row: str
    figure: Estimate | None
    """(row - majority) / (ceiling - majority), 1 is the ceiling; None where a part of it is missing."""
    asked: float
    """What it must have reached."""
    gap: str
    """What is missing; empty where there is a figure."""

    @property
    def is_reached(self) -> bool:
        """Return whether the share is there and large enough."""
        return self.figure is not None and self.figure.value >= self.asked


def is_ranked(row: str) -> bool:
    """Return whether a row, or a model, is the Scorer or the Scorer without a part."""
    return any(one.id == row and RANKED in (one.id, one.part_of) for one in METHODS)


def rows_behind(row: str) -> tuple[str, ...]:
    """Return the rows whose shares say whether the models behind `row` have learned.

    Its own where it is trained for itself; else those of the models that it rests on: a foreign trajectory is read by
    Oracle's predictor, and the Scorer rests on Oracle's and No-Traj's. Nothing where no model is behind it, or where
    nobody knows the row.
    """
    bounded = {one.id for one in METHODS if one.ceiling is not None and not is_ranked(one.id)}
    own = [OWN_ROWS.get(model, model) for model in models_of(row)]
    found = tuple(dict.fromkeys(each for each in own if each in bounded))
    is_own = row in found or (row in bounded and not found and bool(own))
    return (row,) if is_own else found


def has_own_ceiling(row: str) -> bool:
    """Return whether the ceiling that bounds a row is what exact inference gets with the row's own inputs."""
    return any(one.id == row == one.ceiling for one in METHODS)


def asked_share(row: str, limits: VerdictConfig) -> float:
    """Return the share that a row must have reached, by the ceiling that bounds it."""
    asked = {
        "no_traj": limits.no_traj_share,
        "endpoint_traj": limits.endpoint_traj_share,
        "oracle": limits.oracle_share,
    }
    kind = method(row).ceiling
    assert kind is not None, "rows_behind names rows with a ceiling only"
    return asked[kind]


@lru_cache(maxsize=SHARES_KEPT)
def reached_share(evidence: Evidence, world: str, row: str, cfg: ClaimsConfig, limits: VerdictConfig) -> ReachedShare:
    """Return the share of its ceiling that a row has reached in a world.

    Args:
        evidence: the tables.
        world: name of the world.
        row: a row with a ceiling.
        cfg: planned seeds and resampling.
        limits: what is asked.
    """
    asked, mean = asked_share(row, limits), statistics.plain_mean(len(cfg.horizons))
    top = contrast(evidence, world, row, FLOOR, "m1", cfg)
    way = contrast(evidence, world, f"{CEILING}{method(row).ceiling}", FLOOR, "m1", cfg)
    gap = top.gap or way.gap
    if gap or top.profile is None or way.profile is None:
        return ReachedShare(row, None, asked, gap)
    figure = statistics.ratio(top.profile, way.profile, mean, cfg.confidence)
    if not np.isfinite(figure.value):
        return ReachedShare(row, None, asked, f"the ceiling of {row} is no better than {FLOOR} in {world}")
    return ReachedShare(row, figure, asked, "")
