"""Is it steps or width that the predictors of the recipe `claims` lack? Trains them at several widths, on dev.

    python -m benchmarks.width_curve --root runs/planners [--widths 64 128 192] [--epochs 8]

In the development world, which no claim uses; its test takes are not opened. Everything but the width (and the hidden
width, in proportion) and the epochs is the recipe's. Prints M@1 on train and dev after each epoch, mean over H, %. The
root may be that of `benchmarks.planner_worlds --part development`, whose E_tau and predictors are found again.
"""

import argparse
import sys
from pathlib import Path

from deployments.recipes.worlds import planners_in_worlds
from deployments.settings import one_thread_per_process
from schemas.arrow import rows_of
from schemas.claims import ClaimsConfig
from schemas.comparison import PlannerWorldsConfig
from schemas.config import RunOptions
from schemas.results import CurvePoint
from schemas.training import PredictorConfig
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import root_lock
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table
from trajpilot_core.studies.claims.worlds.jobs import LOCK_WAIT_S, make_world
from trajpilot_core.studies.claims.worlds.plan import options_of
from trajpilot_core.studies.claims.worlds.stages import CURVE_PREDICTOR, FITTED
from trajpilot_core.studies.planner_worlds.worlds import config_of, planned

CURVES, MODELS = "predictor_curves", {"No-Traj": "final/no_traj", "Oracle": "final/traj"}


def main() -> None:
    """Train at each width and print a row for each model, width and split."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.width_curve", description=__doc__)
    parser.add_argument("--root", required=True, type=Path)
    parser.add_argument("--widths", type=int, nargs="+", default=(64, 128, 192))
    parser.add_argument("--epochs", type=int, help="the recipe's unless given; the schedule is stretched over them")
    asked = parser.parse_args()
    world = planned("development", PlannerWorldsConfig(), ClaimsConfig()).worlds[0]
    config, options = config_of(world, planners_in_worlds("development")), options_of(world, asked.root, "cpu")
    stages = {stage.name: stage for stage in (*FITTED, CURVE_PREDICTOR)}
    with root_lock(options.root, LOCK_WAIT_S):
        make_world(world, Path(options.root), Path(options.data_root))
        for width in asked.widths:
            widened = config.replace(predictor=changed(config.predictor, width, asked.epochs))
            for name, stage in stages.items():
                print(f"width {width}, {name}: {execute(stage, widened, options, stages).message()}", file=sys.stderr)
            print("\n".join(rows_at(options, width)), flush=True)


def changed(predictor: PredictorConfig, width: int, epochs: int | None) -> PredictorConfig:
    """Return a predictor of another width, its hidden layers in proportion, and of other epochs if they are given."""
    hidden = round(predictor.hidden * width / predictor.width)
    train = predictor.train if epochs is None else predictor.train.replace(epochs=epochs)
    return predictor.replace(width=width, hidden=hidden, train=train)


def rows_at(options: RunOptions, width: int) -> list[str]:
    """Return a row of a table for each model and split: M@1 after each epoch, %."""
    stored = open_folder(options.root, options.protocols)
    manifest = current_manifest(stored, CURVE_PREDICTOR.name)
    assert manifest is not None, "it has just been committed"
    points = [one for one in rows_of(CurvePoint, read_entry_table(stored, manifest, CURVES)) if one.quantity == "M@1"]
    lines = []
    for name, model in MODELS.items():
        for split in ("train", "dev"):
            own = sorted((p.epoch, p.value) for p in points if (p.split, p.model) == (split, model))
            lines.append(
                f"| {name} | {width} | {split} | " + " | ".join(f"{100 * value:.1f}" for _, value in own) + " |"
            )
    return lines


if __name__ == "__main__":
    one_thread_per_process()
    try:
        main()
    except TrajPilotError as error:
        sys.exit(f"width_curve: {error}")
