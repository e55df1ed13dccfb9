"""Which worlds each part computes, and how: stage by stage; what is there is reused.

A call that was killed goes on at the stage, and in a training at its last checkpoint.
"""

from pathlib import Path
from typing import NamedTuple

from schemas.config import PipelineConfig
from schemas.latent_worlds import BASE, LATENT_WORLDS, LatentWorldsConfig, LatentWorldsPart, latent_world
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.store.lock import root_lock
from trajpilot_core.studies.claims.worlds import plan
from trajpilot_core.studies.claims.worlds.jobs import LOCK_WAIT_S, WorldsRoot, make_world
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, options_of
from trajpilot_core.studies.latent_worlds.stages import stages_of
from trajpilot_core.studies.planner_worlds.worlds import Said


class PlannedLatentWorlds(NamedTuple):
    """What one part computes, before anything runs."""

    part: LatentWorldsPart
    worlds: tuple[PlannedWorld, ...]


def planned(part: LatentWorldsPart, cfg: LatentWorldsConfig) -> PlannedLatentWorlds:
    """Return what a part computes: the world `base` of the development seed, or all worlds of the final one."""
    names = (BASE,) if part == "development" else LATENT_WORLDS
    seed = cfg.development_seed if part == "development" else cfg.seed
    worlds = tuple(PlannedWorld(name, seed, "curve", latent_world(name, seed, cfg)) for name in names)
    return PlannedLatentWorlds(part, worlds)


def config_of(world: PlannedWorld, recipe: PipelineConfig) -> PipelineConfig:
    """Return the configuration of one world: one chain, whose models have the world's seed."""
    config = plan.config_of(world, recipe)
    return config.replace(latent=config.latent.replace(seeds=(world.seed,)))


def run_world(world: PlannedWorld, recipe: PipelineConfig, runs: WorldsRoot, said: Said) -> None:
    """Bring every stage of one world up to date, in order.

    Raises:
        TrajPilotError: a stage failed; what was finished is found again.
    """
    config, options = config_of(world, recipe), options_of(world, Path(runs.root), runs.device)
    stages = stages_of()
    with root_lock(options.root, LOCK_WAIT_S):
        make_world(world, Path(options.root), Path(options.data_root))
        for stage in stages.values():
            said(f"{world.folder}: {execute(stage, config, options, stages).message()}")


def plan_lines(part: PlannedLatentWorlds, cfg: LatentWorldsConfig, recipe: PipelineConfig) -> list[str]:
    """Return what a part would compute, one line per world and one of the models."""
    own = recipe.latent
    lines = [
        f"{world.folder}: {world.world.train_takes} + {world.world.test_takes} takes, {world.world.n_labels()} labels, "
        f"H = {', '.join(map(str, cfg.horizons))}"
        for world in part.worlds
    ]
    return [
        *lines,
        f"predictors of width {own.width} and {own.layers} layers, {own.train.epochs} epochs; searches of "
        f"{own.search.samples} x {own.search.iterations}; nothing was computed",
    ]
