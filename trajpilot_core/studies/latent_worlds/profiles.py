"""Figures of the study as profiles over the horizon with their resamples of takes: what every verdict is read off.

Shapes: S seeds, T takes, H horizons, B resamples. A figure without a horizon has H = 1.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from schemas.claims import ClaimsConfig
from schemas.latent import ConditionScore, EnergyCorrelation
from schemas.latent_worlds import EnergyTake, LatentWorldsConfig
from trajpilot_core.arrays import Array
from trajpilot_core.studies.claims.evidence.contrasts import contrast
from trajpilot_core.studies.claims.evidence.statistics import Profile, Sums, profile, resample
from trajpilot_core.studies.latent_worlds.tables import LatentTables

Quantity = Literal["l1", "accuracy", "r"]
"""Of the next latent, hundredths; Full mAcc, points; Pearson's r of energy and step accuracy."""
FULL = "f1"
"""Column of the scores: rows in latents decode step by step, so that their F@1 is their Full mAcc."""
SUMS = ("energy_sum", "energy_squares", "accuracy_sum", "accuracy_squares", "products")
VARIES = 1e-12


def claims_of(cfg: LatentWorldsConfig, quantity: Quantity, seed: int | None = None) -> ClaimsConfig:
    """Return the settings by which the rules of the claims read a quantity of this study.

    Args:
        cfg: margins, horizons, resamples.
        quantity: whose margin.
        seed: of the worlds; None: the final one.
    """
    margins = {
        "l1": (cfg.l1_margin, cfg.l1_target_se),
        "accuracy": (cfg.accuracy_margin, cfg.accuracy_target_se),
        "r": (cfg.correlation_margin, cfg.correlation_target_se),
    }
    margin, target = margins[quantity]
    own = cfg.seed if seed is None else seed
    return ClaimsConfig().replace(
        seeds=(own,),
        single_seed=own,
        horizons=cfg.horizons,
        bootstrap=cfg.bootstrap,
        margin=margin,
        target_se=target,
    )


def profile_of(
    tables: LatentTables, quantity: Quantity, world: str, row: str, reference: str, cfg: ClaimsConfig
) -> tuple[Profile | None, str]:
    """Return the profile of a figure, and what is missing of it.

    Args:
        tables: the study's.
        quantity: what is read.
        world: its name.
        row: a condition; a row of the tables; an energy.
        reference: what is subtracted; for `r` whose motion the plans follow.
        cfg: as `claims_of` gives it.
    """
    if quantity == "accuracy":
        found = contrast(tables.evidence, world, row, reference, FULL, cfg)
        return found.profile, found.gap
    made = l1_profile if quantity == "l1" else correlation_profile
    of = made(tables, world, row, reference, cfg)
    return of, "" if of is not None else f"no {row} and {reference} in {world}, seed {cfg.single_seed}"


def l1_profile(tables: LatentTables, world: str, row: str, reference: str, cfg: ClaimsConfig) -> Profile | None:
    """Return the paired difference of two conditions, H = 1; None where one of them is missing."""
    held = [one for at, one in tables.condition_takes if (at.world, at.seed) == (world, cfg.single_seed)]
    by_name = {name: {one.take_id: one for one in held if one.condition == name} for name in (row, reference)}
    takes = sorted(by_name[row])
    if not takes or takes != sorted(by_name[reference]):
        return None
    counts = np.array([[float(by_name[row][take].n_pairs)] for take in takes])
    sums = np.array([[by_name[row][take].total - by_name[reference][take].total] for take in takes])
    return profile(world, {cfg.single_seed: Sums(sums, counts)}, cfg)


def correlation_profile(
    tables: LatentTables, world: str, row: str, reference: str, cfg: ClaimsConfig
) -> Profile | None:
    """Return Pearson's r of one energy and the accuracy at each H; None where a horizon is missing."""
    held = [
        one
        for at, one in tables.energy_takes
        if (at.world, at.seed) == (world, cfg.single_seed) and (one.energy, one.motion) == (row, reference)
    ]
    if not set(cfg.horizons) <= {one.horizon for one in held}:
        return None
    takes = sorted({one.take_id for one in held})
    moments = _moments(held, takes, cfg.horizons)
    points, draws = pearson(moments.sum(0)), pearson(resample(world, cfg.single_seed, moments, cfg))
    if not np.isfinite(points).all():
        return None
    n = moments[..., 0]
    return Profile((cfg.single_seed,), points[None], draws[None], (int((n > 0).sum(0).min()),), int(n.sum()))


def _moments(held: Sequence[EnergyTake], takes: Sequence[str], horizons: Sequence[int]) -> Array:
    """Return (T, H, 6): windows, and the sums of `SUMS`."""
    moments = np.zeros((len(takes), len(horizons), 1 + len(SUMS)))
    for one in held:
        at = takes.index(one.take_id), horizons.index(one.horizon)
        moments[at] = (one.n_windows, *(getattr(one, name) for name in SUMS))
    return moments


def pearson(moments: Array) -> Array:
    """Return (...) Pearson's r of (..., 6) sums; not a number where one of the two never varies."""
    n, x, xx, y, yy, xy = np.moveaxis(moments, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        variances = (xx / n - (x / n) ** 2) * (yy / n - (y / n) ** 2)
        r = (xy / n - x * y / n**2) / np.sqrt(variances)
    return np.where(variances > VARIES**2, r, np.nan)


def mean_conditions(tables: LatentTables, world: str) -> dict[str, ConditionScore]:
    """Return condition -> its row on test takes, averaged over seeds."""
    return {
        one.condition: one
        for at, one in tables.conditions
        if at.world == world and one.split == "test" and one.seed is None
    }


def correlations_of(tables: LatentTables, world: str) -> dict[tuple[str, str, int], EnergyCorrelation]:
    """Return (energy, motion, H) -> the row in l1."""
    return {
        (one.energy, one.motion, one.horizon): one
        for at, one in tables.correlations
        if at.world == world and one.distance == "l1"
    }
