"""Commands for pose sources: accuracy, and unit of length."""

from pathlib import Path
from typing import Annotated, get_args

import pyarrow as pa
import typer
from rich.console import Console

from deployments.cli.options import Device, Root, check_corpus, run_options
from deployments.cli.tables import say, show, time
from deployments.recipes import recipe as named
from schemas.config import PipelineConfig
from schemas.poses import VideoSourceName
from trajpilot_core.corpora.formats.folders import is_simulated
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

Data = Annotated[str, typer.Option("--data", help="Folder of the corpus, with pose files and videos.")]
Recipe = Annotated[str, typer.Option("--recipe", help="Named experiment to take the settings from.")]
Source = Annotated[str, typer.Option("--source", help="Source that estimates poses from video: odometry or pi3.")]
Workers = Annotated[int, typer.Option("--workers", help="Processes.")]
Weights = Annotated[str | None, typer.Option("--weights", help="Folder with the weights of pi3.")]
measuring = typer.Typer(help="Pose sources: accuracy and unit of length.", no_args_is_help=True)


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


@measuring.command()
def accuracy(
    data: Data,
    root: Root = "runs",
    recipe: Recipe = "demo",
    source: Source = "odometry",
    workers: Workers = 2,
    weights: Weights = None,
    device: Device = "auto",
) -> None:
    """Estimate the poses of every segment from its video and compare them with the pose files."""
    from trajpilot_core.studies.pose_accuracy import corpus_errors, distributions

    config, console = from_video(named(recipe), source, weights), Console()
    data_root, other = check_corpus(data), str(Path(root) / f"poses-{source}")
    if is_simulated(open_corpus(data_root)):
        say(console, "The corpus is a SIMULATED world; these numbers say nothing about real recordings.")
    options = run_options(root=other, data_root=data_root, workers=workers, device=device, max_reject_ratio=1.0)
    for name in ("ingest", "trajectories"):
        outcome = execute(STAGES[name], config, options, STAGES)
        by = f" from {config.trajectories.source}" if name == "trajectories" else ""
        say(console, f"{name}{by}: {outcome.message()}  ({time(outcome.seconds)})")
    tables = read(other, "ingest", "takes"), read(other, "ingest", "segments"), read(other, "trajectories", "motions")
    cells = [
        (
            d.name,
            f"{d.n:,}",
            *(" / ".join(f"{x:.2f}" for x in pair) for pair in (d.rotation_deg, d.position_cm, d.position_share)),
            f"{d.turned_deg:.1f}",
        )
        for d in distributions(corpus_errors(data_root, *tables, config.trajectories))
    ]
    columns = ("clips", "n", "rotation error, deg", "position error, cm", "of the true spread", "head turned, deg")
    show(console, columns, cells, f"poses of {source} against pose files: median and 90 %")
    lost = f"rejected {sum(outcome.rejected.values()):,}: {dict(outcome.rejected)}"
    counts = f"{outcome.n_out:,} of {outcome.n_in:,} clips have poses, {lost}"
    say(console, f"{counts}; position error after the best similarity of each clip")


def from_video(config: PipelineConfig, source: str, weights: str | None) -> PipelineConfig:
    """Return the settings with poses from video and lengths as estimated.

    Raises:
        InputError: the source does not read videos.
    """
    if source not in get_args(VideoSourceName):
        raise InputError(f"source {source} does not read videos; use odometry or pi3")
    pi3 = config.trajectories.pi3.replace(weights=weights)
    return config.replace(trajectories=config.trajectories.replace(source=source, scale="raw", pi3=pi3))


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
