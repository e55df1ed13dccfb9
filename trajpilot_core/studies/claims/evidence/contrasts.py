"""Rows of a world and paired differences between them, as profiles; which of the models they rest on are trained."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from schemas.claims import ClaimsConfig, world_seeds
from trajpilot_core.arrays import Array
from trajpilot_core.evaluation.trained_rows import model_of
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import SCORER_MODELS
from trajpilot_core.studies.claims.evidence.statistics import Profile, Sums, joined, resample
from trajpilot_core.studies.claims.evidence.tables import METRICS, Evidence, SeedScores

RESAMPLED_KEPT = 40
"""Resampled tables that stay in memory, one per world, seed and metric (19 MB each at 40 rows)."""
TRAINED = "trained: "
"""How the names of the judgements of trainings begin."""
FINAL, FOLDS = "final/", "folds/"
"""How the chain that answers test windows begins in judgements, and how models of the other chains begin in rows."""


class Contrast(NamedTuple):
    """A figure per horizon, and what is missing of it."""

    profile: Profile | None
    """Of the seeds that are there; None where none is."""
    gap: str
    """What is not there, for the reader; empty where every planned seed is."""


def contrast(
    evidence: Evidence, world: str, row: str, reference: str | None, metric: str, cfg: ClaimsConfig
) -> Contrast:
    """Return a row, or the paired difference row - reference, of every seed of a world that has them.

    Args:
        evidence: the tables.
        world: name of the world.
        row: a row of the tables, or `ceiling/<row>`.
        reference: the row that is subtracted; None: nothing is.
        metric: one of `tables.METRICS`.
        cfg: planned seeds and resampling.

    Returns:
        Rows that a seed scored on different windows are never subtracted: that seed is a gap.
    """
    asked = [name for name in (row, reference) if name is not None]
    found: dict[int, Sums] = {}
    drawn: dict[int, tuple[Array, Array]] = {}
    unequal: list[int] = []
    for seed in world_seeds(cfg, world):
        scores = evidence.scores.get(world, {}).get(seed)
        if scores is None or any(name not in scores.rows for name in asked):
            continue
        if any(not np.array_equal(scores.counts[row], scores.counts[name]) for name in asked):
            unequal.append(seed)
            continue
        column, (sums, counts) = METRICS.index(metric), resampled_rows(scores, world, seed, metric, cfg)
        own, drawn_own = scores.rows[row][..., column], sums[row]
        if reference is not None:
            own, drawn_own = own - scores.rows[reference][..., column], drawn_own - sums[reference]
        found[seed], drawn[seed] = Sums(own, scores.counts[row]), (drawn_own, counts[row])
    gap = _gap(evidence, world, asked, {*found, *unequal}, cfg)
    if unequal:
        where = f"{world}, seed {', '.join(map(str, unequal))}"
        gap = "; ".join(part for part in (f"{' and '.join(asked)} scored on different windows ({where})", gap) if part)
    return Contrast(joined(found, drawn) if found else None, gap)


@lru_cache(maxsize=RESAMPLED_KEPT)
def resampled_rows(
    scores: SeedScores, world: str, seed: int, metric: str, cfg: ClaimsConfig
) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Return row -> (B, H) sums of a metric, and row -> (B, H) windows, in every resample of one world and seed.

    All rows at once; a difference of two rows is the difference of these, so that nothing is resampled twice.
    """
    rows, windows = sorted(scores.rows), {id(scores.counts[row]): scores.counts[row] for row in sorted(scores.rows)}
    values = [*(scores.rows[row][..., METRICS.index(metric)] for row in rows), *windows.values()]
    drawn = [np.ascontiguousarray(part) for part in np.moveaxis(resample(world, seed, np.stack(values, 1), cfg), 1, 0)]
    counts = dict(zip(windows, drawn[len(rows) :], strict=True))
    return dict(zip(rows, drawn, strict=False)), {row: counts[id(scores.counts[row])] for row in rows}


def _gap(evidence: Evidence, world: str, asked: list[str], found: set[int], cfg: ClaimsConfig) -> str:
    """State what of the planned seeds is missing."""
    missing = [seed for seed in world_seeds(cfg, world) if seed not in found]
    if not missing:
        return ""
    if world not in evidence.scores:
        return f"no scores of the world {world}"
    held = set().union(*(scores.rows for scores in evidence.scores[world].values()))
    absent = [name for name in asked if name not in held]
    if absent:
        return f"no row {', '.join(absent)} in {world}"
    return f"{world} lacks seed {', '.join(str(seed) for seed in missing)}"


def untrained(evidence: Evidence, world: str, rows: Sequence[str], cfg: ClaimsConfig) -> tuple[str, ...]:
    """Name the models, of any scored seed of a world, that `rows` rest on and that are not judged trained.

    A model of the final chain that was not judged at all counts too. The chains of the folds are there in some recipes
    only, so of them those count that were judged. Source of the rule: docs/decisions/paper-gaps.md, D 51.
    """
    models = {model for row in rows for model in models_of(row)}
    weak: dict[tuple[str, str], list[int]] = defaultdict(list)
    for seed in world_seeds(cfg, world):
        if seed not in evidence.scores.get(world, {}):
            continue
        judged = _trainings(evidence, world, seed)
        for chain, verdict in judged.items():
            if verdict != "holds" and model_of(chain) in models:
                weak[chain, ""].append(seed)
        for model in models:
            if not model.startswith(FOLDS) and f"{FINAL}{model}" not in judged:
                weak[f"{FINAL}{model}", ": not judged"].append(seed)
    return tuple(
        f"{chain} ({world}, seed {', '.join(map(str, seeds))}{why})" for (chain, why), seeds in sorted(weak.items())
    )


@lru_cache(maxsize=RESAMPLED_KEPT)
def _trainings(evidence: Evidence, world: str, seed: int) -> dict[str, str]:
    """Return `<chain>/<model>` -> its verdict, of one world and seed."""
    return {
        judgement.check.removeprefix(TRAINED).split(",")[0]: judgement.verdict
        for origin, judgement in evidence.judgements
        if (origin.world, origin.seed) == (world, seed) and judgement.check.startswith(TRAINED)
    }


def models_of(row: str) -> tuple[str, ...]:
    """Return the models that a row rests on; a scorer that the report does not name rests on what the Scorer does."""
    known = next((one for one in METHODS if one.id == row), None)
    if known is not None:
        return known.models
    return SCORER_MODELS if row.startswith("scorer") else ()
