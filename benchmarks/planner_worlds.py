"""The planners of other papers in simulated worlds, each under a cap of thread-minutes that is fixed beforehand.

    python -m benchmarks.planner_worlds --root runs/planners --part deterministic [--jobs 1] [--dry]

Parts: `pilot` (a deterministic world of another seed) and `development` (the development world of the claims), on which
settings are chosen and of which nothing is published; `deterministic`; `claims` (the worlds `base` of the claims, with
models of their own: give a root of its own, not that of `trajpilot claims`). `--dry` prints worlds, planners and caps
and computes nothing. A killed call goes on where it was. At the end the tables of the part are written into
docs/comparison/<part>, from which `trajpilot docs` renders docs/comparison.md. Settings: schemas/comparison.py;
reasons: docs/decisions/planners.md.
"""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from deployments.recipes.worlds import claims, planners_in_worlds
from deployments.settings import one_thread_per_process
from schemas.claims import ClaimsConfig
from schemas.comparison import PUBLISHED, PlannerWorldsConfig, WorldPart
from schemas.config import PipelineConfig
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.runtime import worker_pool
from trajpilot_core.simworld.pool import start_drawing
from trajpilot_core.studies.claims.worlds.collect import require_fixed
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot
from trajpilot_core.studies.planner_worlds.tables import FOLDER, publish_part
from trajpilot_core.studies.planner_worlds.worlds import PlannedPart, plan_lines, planned, run_world


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, or `given`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner_worlds", description=__doc__)
    parser.add_argument("--root", required=True, help="everything that is computed lies below it")
    parser.add_argument("--part", required=True, choices=get_args(WorldPart))
    parser.add_argument("--jobs", type=int, default=1, help="worlds side by side, one thread each")
    parser.add_argument("--device", default="cpu", help="where the models run")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="tables go into its folder comparison")
    parser.add_argument("--dry", action="store_true", help="print what would be computed, and the caps")
    return parser.parse_args(given)


def run(options: argparse.Namespace) -> None:
    """Compute the worlds of a part and write its tables.

    Raises:
        InputError: the part `claims` is asked for before the settings of the claims are fixed.
    """
    cfg, recipe = PlannerWorldsConfig(), planners_in_worlds(options.part)
    part = planned(options.part, cfg, ClaimsConfig())
    for line in plan_lines(part, recipe.planners.methods):
        said(line)
    if options.dry:
        return
    if options.part == "claims":
        require_fixed(ClaimsConfig(), claims())
    runs = WorldsRoot(options.root, options.device)
    compute(part, recipe, runs, options.jobs)
    if options.part in PUBLISHED:
        said(f"tables: {publish_part(part, cfg, recipe, runs, options.docs / FOLDER)}")


def compute(part: PlannedPart, recipe: PipelineConfig, runs: WorldsRoot, jobs: int) -> None:
    """Bring the worlds of a part up to date, `jobs` at a time, each in a process of its own where there are several."""
    work = partial(run_world, part=part, recipe=recipe, runs=runs, said=said)
    if jobs == 1 or len(part.worlds) == 1:
        for world in part.worlds:
            work(world)
        return
    with worker_pool(min(jobs, len(part.worlds)), start_drawing) as pool:
        for future in [pool.submit(work, world) for world in part.worlds]:
            future.result()


def said(line: str) -> None:
    """Say how far it is."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    one_thread_per_process()
    try:
        run(arguments())
    except TrajPilotError as error:
        sys.exit(f"planner_worlds: {error}")
