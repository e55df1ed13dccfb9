"""Which worlds each part computes, and how: stage by stage, planner by planner, each timed; what is there is reused.

A call that was killed goes on at the planner, and inside its training at its last checkpoint.
"""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from schemas.base import Record
from schemas.claims import BASE, ClaimsConfig
from schemas.comparison import (
    DEVELOPMENT_SEED,
    PlannerWorldsConfig,
    WorldPart,
    deterministic_world,
    development_world,
)
from schemas.config import PipelineConfig, RunOptions
from schemas.planners import PlannerName
from schemas.world import WorldConfig
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.store.lock import root_lock
from trajpilot_core.studies.claims.worlds import plan
from trajpilot_core.studies.claims.worlds.jobs import LOCK_WAIT_S, WorldsRoot, make_world
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, options_of
from trajpilot_core.studies.planner_worlds.stages import PLANNERS_STAGE, stages_of

COSTS_FILE = "paper_planners.json"
"""In the root of a world: what the trainings of its planners took."""
Said = Callable[[str], None]


class TrainingTime(Record):
    """What one training took on this machine."""

    thread_s: float | None = None
    """CPU seconds of the call that ended it; None: it was begun and has not ended."""
    is_whole: bool = True
    """That call also began it."""


class PlannedPart(NamedTuple):
    """What one part computes, before anything runs."""

    part: WorldPart
    worlds: tuple[PlannedWorld, ...]
    cap_s: float
    """Seconds of one thread that all trainings of one planner may take in one world."""
    horizons: tuple[int, ...]

    def trainings(self, methods: Sequence[PlannerName]) -> tuple[str, ...]:
        """Return the planners of one world."""
        return tuple(f"{method}_h{horizon}" for method in methods for horizon in self.horizons)


def planned(part: WorldPart, cfg: PlannerWorldsConfig, claims: ClaimsConfig) -> PlannedPart:
    """Return what a part computes: one world, or the worlds `base` of the claims."""
    one: dict[WorldPart, tuple[int, Callable[[], WorldConfig]]] = {
        "pilot": (cfg.pilot_seed, lambda: deterministic_world(cfg.pilot_seed)),
        "deterministic": (cfg.deterministic_seed, lambda: deterministic_world(cfg.deterministic_seed)),
        "development": (DEVELOPMENT_SEED, lambda: development_world(DEVELOPMENT_SEED, cfg.development_takes)),
    }
    if part == "claims":
        worlds = tuple(plan.make(BASE, seed, claims)._replace(kind="curve") for seed in claims.seeds)
    else:
        seed, make = one[part]
        worlds = (PlannedWorld(part, seed, "curve", make()),)
    return PlannedPart(part, worlds, cfg.cap_s(part), cfg.horizons)


def config_of(world: PlannedWorld, recipe: PipelineConfig) -> PipelineConfig:
    """Return the configuration of one world: the planners have the seed of its other models."""
    config = plan.config_of(world, recipe)
    return config.replace(planners=config.planners.replace(seeds=config.alignment.seeds))


def run_world(world: PlannedWorld, part: PlannedPart, recipe: PipelineConfig, runs: WorldsRoot, said: Said) -> None:
    """Bring every stage of one world up to date, in order.

    Raises:
        TrajPilotError: a stage failed; what was finished is found again.
    """
    config, options = config_of(world, recipe), options_of(world, Path(runs.root), runs.device)
    asked = part.trainings(config.planners.methods)
    with root_lock(options.root, LOCK_WAIT_S):
        make_world(world, Path(options.root), Path(options.data_root))
        for name, stage in stages_of(world, asked).items():
            if name == PLANNERS_STAGE:
                train_planners(world, asked, config, options, said)
            else:
                said(f"{world.folder}: {execute(stage, config, options, stages_of(world, asked)).message()}")


def train_planners(
    world: PlannedWorld, asked: Sequence[str], config: PipelineConfig, options: RunOptions, said: Said
) -> None:
    """Train the planners one after the other, and note the CPU seconds of each; one worker, so that they are all here.

    Every call asks for one planner more than the call before, whose planners it finds committed.
    """
    root = Path(options.root)
    for n, name in enumerate(asked, start=1):
        before = read_costs(root)
        was_begun = name in before and before[name].thread_s is None
        write_costs(root, before | {name: TrainingTime()})
        stages, clock = stages_of(world, asked[:n]), time.process_time()
        outcome = execute(stages[PLANNERS_STAGE], config, options, stages)
        took = TrainingTime(thread_s=round(time.process_time() - clock, 1), is_whole=not was_begun)
        write_costs(root, before if outcome.cached else before | {name: took})
        said(f"{world.folder}: {name} {'found' if outcome.cached else f'trained in {took.thread_s} CPU s'}")


def read_costs(root: Path) -> dict[str, TrainingTime]:
    """Return what the trainings below a root took; nothing where none was timed."""
    path = root / COSTS_FILE
    held = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return {name: TrainingTime.model_validate(value) for name, value in held.items()}


def write_costs(root: Path, costs: dict[str, TrainingTime]) -> None:
    """Write what the trainings below a root took, as a whole."""
    temporary = root / f".{COSTS_FILE}"
    root.mkdir(parents=True, exist_ok=True)
    temporary.write_text(json.dumps({name: cost.content() for name, cost in costs.items()}, indent=1), encoding="utf-8")
    temporary.replace(root / COSTS_FILE)


def plan_lines(part: PlannedPart, methods: Sequence[PlannerName]) -> list[str]:
    """Return what a part would compute and what its planners may take at most, one line per world and a sum."""
    trainings = part.trainings(methods)
    each = len(methods) * part.cap_s / 60
    lines = [
        f"{world.folder}: {world.world.train_takes} + {world.world.test_takes} takes, {world.world.n_labels()} labels; "
        f"{len(trainings)} planners ({', '.join(trainings)})"
        for world in part.worlds
    ]
    return [
        *lines,
        f"cap: {part.cap_s / 60:g} thread-minutes for each planner, {each:g} for each world, "
        f"{each * len(part.worlds):g} in all; No-Traj and Oracle as their recipe has them; nothing was computed",
    ]
