"""Rows of a world and paired differences between them, as profiles; which of the models they rest on are trained."""

from typing import NamedTuple

import numpy as np

from schemas.claims import ClaimsConfig, world_seeds
from trajpilot_core.claims.statistics import Profile, Sums, profile
from trajpilot_core.claims.tables import METRICS, Evidence, SeedScores
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.paper_claims import SCORER_MODELS, model_of
from trajpilot_core.report.names import ROWS

TRAINED = "trained: "
"""How the names of the judgements of trainings begin."""


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
        reference: the row that is taken off; None: nothing is.
        metric: one of `tables.METRICS`.
        cfg: planned seeds and resampling.

    Raises:
        InputError: the two rows were scored on different windows.
    """
    asked = [name for name in (row, reference) if name is not None]
    found: dict[int, Sums] = {}
    for seed in world_seeds(cfg, world):
        scores = evidence.scores.get(world, {}).get(seed)
        if scores is not None and all(name in scores.rows for name in asked):
            found[seed] = _sums(scores, row, reference, metric, f"{world}, seed {seed}")
    return Contrast(profile(world, found, cfg) if found else None, _gap(evidence, world, asked, set(found), cfg))


def _sums(scores: SeedScores, row: str, reference: str | None, metric: str, where: str) -> Sums:
    """Return the sums of one seed."""
    column, counts = METRICS.index(metric), scores.counts[row]
    if reference is None:
        return Sums(scores.rows[row][..., column], counts)
    if not np.array_equal(counts, scores.counts[reference]):
        raise InputError(
            f"{row} and {reference} were scored on different windows ({where}): no difference is drawn between them; "
            "run the evaluation of that world again"
        )
    return Sums(scores.rows[row][..., column] - scores.rows[reference][..., column], counts)


def _gap(evidence: Evidence, world: str, asked: list[str], found: set[int], cfg: ClaimsConfig) -> str:
    """Say what of the planned seeds is missing."""
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


def untrained(evidence: Evidence, world: str, rows: tuple[str, ...]) -> tuple[str, ...]:
    """Name the models, of any seed of a world, that `rows` rest on and that are not judged trained.

    Source of the rule: docs/decisions/paper-gaps.md, D 51.
    """
    models = {model for row in rows for model in models_of(row)}
    found = {
        f"{judgement.check.removeprefix(TRAINED).split(',')[0]} (seed {place.seed})"
        for place, judgement in evidence.judgements
        if place.world == world
        and judgement.check.startswith(TRAINED)
        and judgement.verdict != "holds"
        and model_of(judgement.check) in models
    }
    return tuple(sorted(found))


def models_of(row: str) -> tuple[str, ...]:
    """Return the models that a row rests on; a scorer that the report does not name rests on what the Scorer does."""
    if row in ROWS:
        return ROWS[row].models
    return SCORER_MODELS if row.startswith("scorer") else ()
