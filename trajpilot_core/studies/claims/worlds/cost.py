"""What the worlds of the claims cost, estimated: seconds of one thread per job, from counts and measured rates.

Rates are rounded from the jobs of the first worlds, 2026-11-21, on 2 cores that other work shared
(docs/decisions/claims.md); they serve a plan, and nothing is decided by them.
"""

from collections.abc import Mapping, Sequence

from schemas.checks import StudyConfig
from schemas.claims import CURVE_ROWS, ClaimsConfig
from schemas.config import PipelineConfig
from schemas.world import WorldConfig
from trajpilot_core.data.cross_fitting import chains, trained_variants
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, config_of
from trajpilot_core.studies.claims.worlds.stages import stages_of

WINDOWS_PER_S = 2700.0
"""Training windows of one epoch of a predictor of width 96."""
WIDTH = 96
ATTENDED_PER_S = 900.0
"""Training windows of one epoch of retrieval attention of width 96 with 16 neighbours, of the demo, dev included."""
SEGMENTS_PER_S = 6400.0
"""Training segments of one epoch of E_tau of width 32."""
QUERIES_PER_S = 900.0
"""Training queries of one epoch of one scorer, K = 32."""
EVALUATED_TAKE_S = 1.7
"""All rows, retrieval and exact ceilings, per test take: twice what was measured, for the rows that came since."""
BOUNDED_TAKE_S = 0.1
"""Exact ceilings alone, per test take."""
CHECKED_TAKE_S = 0.13
"""Leak checks, per take."""
ENCODED_TAKE_S: Mapping[str, float] = {"video": 0.5, "frames": 0.75, "latents": 0.001}
"""Features, per take."""
WRITTEN_TAKE_S = 1.5
"""Rendering and encoding the video of a take; assumed, not measured."""
NEGLIGIBLE = (
    "feature_space",
    "text_bank",
    "ingest",
    "trajectories",
    "diagnostics",
    "goal_progress",
    "label_effects",
    "planners",
    "probe",
)
"""Stages of seconds; the planners of other papers and the probe are not trained there."""
DEV_SHARE = 0.1
"""Of the training takes."""


def cost_s(world: PlannedWorld, recipe: PipelineConfig) -> dict[str, float]:
    """Return job -> seconds of one thread, of every job that a rate is known of.

    Args:
        world: one world of the claims.
        recipe: as it is computed with.
    """
    size, config = world.world, config_of(world, recipe)
    alignment, predictor, scorer = config.alignment, config.predictor, config.scorer
    takes, fitted = size.train_takes + size.test_takes, size.train_takes * (1 - DEV_SHARE)
    held = fold_takes(size, config)
    of_chain = {chain: fitted - (held if chain.fold is not None else 0) for chain in chains(alignment.folds)}
    is_curve = world.kind == "curve"
    models = {chain: len(CURVE_ROWS if is_curve else trained_variants(chain, predictor)) for chain in of_chain}
    trained = sum(models[chain] * n for chain, n in of_chain.items())
    attended = len(config.attention.variants) * fitted
    windows = sum(max(0, size.segments - horizon + 1) for horizon in ClaimsConfig().horizons)
    queries = held * alignment.folds * windows * scorer.train.epochs
    scorers = 1 + len(scorer.ablations) + (scorer.plus is not None)
    found = {
        "world": WRITTEN_TAKE_S * takes if size.entry == "video" else 0.0,
        "features": ENCODED_TAKE_S["video"] * takes,
        "feature_space_features": ENCODED_TAKE_S[size.entry] * takes,
        "alignment": sum(of_chain.values()) * size.segments * alignment.train.epochs / SEGMENTS_PER_S,
        "predictor": trained * windows * predictor.train.epochs * predictor.width / WIDTH / WINDOWS_PER_S,
        "attention": attended
        * windows
        * config.attention.train.epochs
        * config.attention.width
        / WIDTH
        / ATTENDED_PER_S,
        "scorer": queries * scorers / QUERIES_PER_S,
        "scorer_study": queries * sum(StudyConfig().shares) / 100 / QUERIES_PER_S,
        "evaluation": EVALUATED_TAKE_S * size.test_takes,
        "exact_ceilings": BOUNDED_TAKE_S * size.test_takes,
        "curve": 2 * BOUNDED_TAKE_S * size.test_takes,
        "leak_checks": CHECKED_TAKE_S * takes,
    }
    return {job: seconds for job, seconds in found.items() if job == "world" or job in stages_of(world)}


def fold_takes(size: WorldConfig, config: PipelineConfig) -> float:
    """Return how many training takes each fold holds out."""
    alignment, fitted = config.alignment, size.train_takes * (1 - DEV_SHARE)
    if alignment.folds == 1:
        return max(1.0, alignment.holdout_share * fitted)
    return fitted * (alignment.fold_share or 1 / alignment.folds)


def plan_text(worlds: Sequence[PlannedWorld], recipe: PipelineConfig) -> list[str]:
    """Return a line per world with its size, stages and estimated hours of one thread, and their sum.

    Args:
        worlds: in order.
        recipe: as they are computed with.
    """
    lines, total = [], 0.0
    for world in worlds:
        seconds = cost_s(world, recipe)
        unknown = [name for name in stages_of(world) if name not in {*seconds, *NEGLIGIBLE}]
        hours, total = sum(seconds.values()) / 3600, total + sum(seconds.values())
        without = f", without {', '.join(unknown)}" if unknown else ""
        takes = f"{world.world.train_takes:>5} + {world.world.test_takes} takes"
        lines.append(f"{world.folder:<20} by {world.world.entry:<8} {takes}  {hours:5.2f} h{without}")
    return [
        *lines,
        f"{len(worlds)} worlds, about {total / 3600:.1f} hours of one thread; an estimate, nothing was computed",
    ]
