"""Command for pose sources: unit of length."""

import pyarrow as pa
import typer
from rich.console import Console

from deployments.cli.options import Root
from deployments.cli.tables import say
from trajpilot_core.errors import InputError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

measuring = typer.Typer(help="Pose sources: unit of length.", no_args_is_help=True)


@measuring.command()
def step(root: Root = "runs") -> None:
    """Print the median step of the training clips from pose files, metres: trajectories.scale_factor of a fallback."""
    import numpy as np

    from schemas.annotation import DOF, MOTIONS
    from trajpilot_core.poses.motions import median_step_m

    takes = {row["take_id"] for row in read(root, "ingest", "takes").to_pylist() if row["split"] == "train"}
    rows = [row for row in read(root, "trajectories", "motions").to_pylist() if row["take_id"] in takes]
    clips = [row["motions"] for row in rows if row["scale"] == "metric"]
    if not clips:
        raise InputError(f"no training clip below {root} has metric lengths; run trajectories with source aria")
    step_m = median_step_m(np.array(clips, dtype=np.float64).reshape(-1, MOTIONS, DOF))
    say(Console(), f"{step_m:.4f} m, over {len(clips):,} training clips")


def read(root: str, stage: str, entry: str) -> pa.Table:
    """Read a table from the current output of a stage.

    Raises:
        InputError: the stage has not run there.
    """
    folder = open_folder(root)
    manifest = current_manifest(folder, stage)
    if manifest is None:
        raise InputError(f"stage {stage} has not run below {root}; run it first")
    return read_entry_table(folder, manifest, entry)
