"""Command `bench`: how fast this machine is at the work that costs most."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deployments.cli.options import Device, Set, Workers, configure
from deployments.cli.tables import say, table_of
from trajpilot_core.engine.resolve import resolve_device

if TYPE_CHECKING:
    from trajpilot_core.encoders.video.throughput import Speed

benching = typer.Typer(help="Measure how fast this machine is.", no_args_is_help=True)
Models = Annotated[list[str], typer.Option("--model", help="Encoder by any of its names (repeatable).")]
Clips = Annotated[int, typer.Option("--clips", min=1, help="Clips of one second that are decoded and encoded.")]
WANTED_SHARE = 0.6
"""Of the matrix rate, on a GPU. Source: docs/decisions/vjepa.md."""


def add_to(app: typer.Typer) -> None:
    """Register the command group."""
    app.add_typer(benching, name="bench")


@benching.callback()
def group() -> None:
    """Keep the group a group while it has one command."""


@benching.command()
def features(
    model: Models = ["vit_large", "vit_gigantic"],  # noqa: B006
    clips: Clips = 64,
    workers: Workers = 2,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Measure V-JEPA with random weights: clips per second, share of the matrix rate, decoding while encoding."""
    from trajpilot_core.encoders.video.throughput import measure

    used = resolve_device(device)
    console = Console()
    if used == "cpu":
        say(console, "no GPU is used: these are figures of the CPU and say nothing about a GPU")
    with tempfile.TemporaryDirectory() as folder:
        speeds = []
        for name in model:
            cfg = configure("atomic", [f"features.model={name}", *set_]).features
            say(console, f"{cfg.model}: {clips} clips of {cfg.n_frames} frames at {cfg.size_px} px on {used} ...")
            speeds.append(measure(cfg, used, workers, clips, Path(folder)))
    show_speeds(console, speeds, workers)


def show_speeds(console: Console, speeds: "list[Speed]", workers: int) -> None:
    """Print a row per encoder, and what the columns mean."""
    columns = (
        "model",
        "arithmetic",
        "batch",
        "TFLOP a clip",
        "encode",
        "matrix rate, TFLOP/s",
        "share of it",
        "decode",
        "both",
        "waiting",
        "overlap",
    )
    table = table_of(console, columns, "clips per second, random weights")
    for row in speeds:
        table.add_row(
            row.model,
            row.arithmetic,
            str(row.batch),
            f"{row.tera_per_clip:.3g}",
            f"{row.encoded_hz:.3g}",
            f"{row.matrix_tera_hz:.3g}",
            f"{row.matrix_share:.0%}",
            f"{row.decoded_hz:.3g}",
            f"{row.both_hz:.3g}",
            f"{row.waited_share:.0%}",
            f"{row.overlap:.0%}",
        )
    console.print(table)
    say(console, f"decode: {workers} processes, 448 px video with a keyframe every 250 frames; both: as a run does it")
    say(
        console,
        "waiting: of the encoder for clips, in both; overlap: share of the decoding that hides behind the encoder",
    )
    say(console, f"a GPU should reach {WANTED_SHARE:.0%} of its matrix rate; add --workers where the encoder waits")
