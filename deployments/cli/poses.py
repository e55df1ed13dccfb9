"""Commands on pose sources: their accuracy, and their unit of length."""

from pathlib import Path
from typing import Annotated

import pyarrow as pa
import typer
from rich.console import Console

from deployments.cli.options import Device, Root, check_corpus, run_options
from deployments.cli.tables import say, show, time
from deployments.recipes import recipe as named
from schemas.config import PipelineConfig, RunOptions
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
Recipe = Annotated[str, typer.Option("--recipe", help="Named experiment whose settings hold.")]
Source = Annotated[str, typer.Option("--source", help="Which source reads the videos: odometry or pi3.")]
Workers = Annotated[int, typer.Option("--workers", help="Processes.")]
Weights = Annotated[str | None, typer.Option("--weights", help="Folder with the weights of pi3.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    poses = typer.Typer(help="Where head motion comes from: accuracy, unit of length.", no_args_is_help=True)
    poses.command()(step)
    poses.command()(accuracy)
    app.add_typer(poses, name="poses")


def step(root: Root = "runs") -> None:
    """Print the median step of the training clips from pose files, metres: trajectories.scale_factor of a fallback."""
    import numpy as np

    from schemas.observation import DOF, MOTIONS
    from trajpilot_core.poses.motions import median_step_m

    takes = {row["take_id"] for row in read(root, "ingest", "takes").to_pylist() if row["split"] == "train"}
    rows = [row for row in read(root, "trajectories", "motions").to_pylist() if row["take_id"] in takes]
    clips = [row["motions"] for row in rows if row["scale"] == "metric"]
    if not clips:
        raise InputError(f"no training clip below {root} has lengths in metres; run trajectories with source aria")
    found = median_step_m(np.array(clips, dtype=np.float64).reshape(-1, MOTIONS, DOF))
    say(Console(), f"{found:.4f} m, over {len(clips):,} training clips")


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

    config = from_video(named(recipe), source, weights)
    tell_simulated(data)
    outcome = computed(config, options(other_root(root, source), data, workers, device), ("ingest", "trajectories"))
    other = other_root(root, source)
    tables = read(other, "ingest", "takes"), read(other, "ingest", "segments"), read(other, "trajectories", "motions")
    errors = corpus_errors(check_corpus(data), *tables, config.trajectories)
    columns = ("clips", "n", "rotation error, deg", "position error, cm", "of the true spread", "head turned, deg")
    cells = [
        (
            d.name,
            f"{d.n:,}",
            pair(d.rotation_deg, 2),
            pair(d.position_cm, 2),
            pair(d.position_share, 2),
            f"{d.turned_deg:.1f}",
        )
        for d in distributions(errors)
    ]
    show(Console(), columns, cells, f"poses of {source} against pose files: median and 90 %")
    say(Console(), f"{outcome}; position error after the best similarity of each clip")


def tell_simulated(data: str) -> None:
    """Warn where the corpus is a simulated world."""
    if is_simulated(open_corpus(check_corpus(data))):
        say(Console(), "The corpus is a SIMULATED world; these numbers say nothing about real recordings.")


def other_root(root: str, source: str) -> str:
    """Return the folder below a root where the poses from video are kept next to those of the pose files."""
    return str(Path(root) / f"poses-{source}")


def from_video(config: PipelineConfig, source: str, weights: str | None) -> PipelineConfig:
    """Return the settings with poses from video whose lengths are left as they were estimated.

    Raises:
        InputError: no such source reads videos.
    """
    if source not in VideoSourceName.__args__:  # type: ignore[attr-defined]
        raise InputError(f"{source} reads no videos; use odometry or pi3")
    pi3 = config.trajectories.pi3.replace(weights=weights)
    return config.replace(trajectories=config.trajectories.replace(source=source, scale="raw", pi3=pi3))


def options(root: str, data: str, workers: int, device: str) -> RunOptions:
    """Return the options of the stages; rejected clips are counted, not refused."""
    return run_options(root=root, data_root=check_corpus(data), workers=workers, device=device, max_reject_ratio=1.0)


def computed(config: PipelineConfig, run: RunOptions, stages: tuple[str, ...]) -> str:
    """Compute stages, and report each; returns what the last one reports of its rows."""
    said, console = "", Console()
    for name in stages:
        outcome = execute(STAGES[name], config, run, STAGES)
        source = f" from {config.trajectories.source}" if name == "trajectories" else ""
        say(console, f"{name}{source}: {outcome.message()}  ({time(outcome.seconds)})")
        lost = sum(outcome.rejected.values())
        said = f"{outcome.n_out:,} of {outcome.n_in:,} clips have poses, rejected {lost:,}: {dict(outcome.rejected)}"
    return said


def read(root: str, stage: str, entry: str) -> pa.Table:
    """Read what counts of a stage below a root.

    Raises:
        InputError: the stage has not run there.
    """
    folder = open_folder(root)
    manifest = current_manifest(folder, stage)
    if manifest is None:
        raise InputError(f"stage {stage} has not run below {root}; run it first")
    return read_entry_table(folder, manifest, entry)


def pair(values: tuple[float, float], digits: int) -> str:
    """Return median and 90 % as people read them."""
    return " / ".join(f"{value:.{digits}f}" for value in values)
