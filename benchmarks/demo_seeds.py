"""How often each order of the demo's rows holds in worlds of other seeds: the demo is one draw, and looked at.

Run: `python -m benchmarks.demo_seeds --folder runs/demo_seeds [--seeds 1 2 3 4 5]` (about five minutes a seed on two
idle cores; what is finished is reused). Every seed is a SIMULATED world of its own, with the demo's recipe; nothing was
chosen on them. Prints differences in M@1, plain mean over H, with 95 % intervals over takes.
"""

import argparse
from pathlib import Path

from deployments.cli.run import DELIBERATE
from deployments.recipes.simulated import demo
from schemas.arrow import rows_of
from schemas.config import RunOptions
from schemas.results import Metric
from schemas.world import demo_world
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.methods import method
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages import REPORTED
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

ORDERS: tuple[tuple[str, str], ...] = (
    ("oracle", "no_traj"),
    ("oracle", "endpoint_traj"),
    ("endpoint_traj", "no_traj"),
    ("scorer", "no_traj"),
    ("hmm_motion", "endpoint_traj"),
    ("top1", "no_traj"),
    ("shuffled", "oracle"),
)
"""Rows, and what is subtracted: those of which the report of the demo says something."""


def run_seed(seed: int, folder: Path, workers: int) -> list[Metric]:
    """Run every stage up to the evaluation on the demo's world of another seed; return its metrics."""
    stages, world = {stage.name: stage for stage in REPORTED}, demo_world()
    root = folder / f"s{seed}"
    where = RunOptions(root=str(root), data_root=str(root / "world"), workers=workers, max_reject_ratio=DELIBERATE)
    write_world(world.replace(seed=world.seed + seed), root / "world", workers, no_progress)
    for stage in REPORTED:
        print(f"seed {seed}: {stage.name}: {execute(stage, demo(), where, stages).message()}", flush=True)
    stored = open_folder(where.root, where.protocols)
    manifest = current_manifest(stored, "evaluation")
    assert manifest is not None, "it has just been committed"
    return rows_of(Metric, read_entry_table(stored, manifest, "metrics"))


def difference(metrics: list[Metric], variant: str, reference: str) -> Metric | None:
    """Return a paired difference in M@1, plain mean over H; None where the run has not both rows."""
    asked = (variant, reference, "M@1", None, "take", "plain", None)
    for row in metrics:
        if (row.variant, row.reference, row.metric, row.horizon, row.cluster, row.pooling, row.seed) == asked:
            return row
    return None


def line(variant: str, reference: str, of_seeds: list[list[Metric]]) -> str:
    """Return the row of the table of one order."""
    found = [difference(metrics, variant, reference) for metrics in of_seeds]
    cells = ["not run" if one is None else f"{one.value:+.1f} [{one.low:.1f}, {one.high:.1f}]" for one in found]
    known = [one for one in found if one is not None]
    above, below = sum(one.low > 0 for one in known), sum(one.high < 0 for one in known)
    name = f"{method(variant).name} − {method(reference).name}"
    return f"| {name} | {' | '.join(cells)} | {above} | {below} | {len(known) - above - below} |"


def main() -> None:
    """Parse the arguments, run the seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/demo_seeds"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="added to the demo's seed")
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    of_seeds = [run_seed(seed, asked.folder, asked.workers) for seed in asked.seeds]
    head = ["points of M@1", *(f"seed {seed}" for seed in asked.seeds), "above", "below", "open"]
    print(f"SIMULATED\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for variant, reference in ORDERS:
        print(line(variant, reference, of_seeds))


if __name__ == "__main__":
    try:
        main()
    except TrajPilotError as error:
        raise SystemExit(f"demo_seeds: {error}") from error
