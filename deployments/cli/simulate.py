"""Command `simulate`: write a simulated world, in any layout, without running anything on it."""

from pathlib import Path

import typer
from rich.console import Console

from deployments.cli.options import Workers, local_root
from trajpilot_core.simworld.presets import PRESETS


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(simulate)


def simulate(
    folder: str = typer.Argument(help="Folder to write: new, empty, or begun by an earlier call."),
    world: str = typer.Option("tiny", help=f"World to simulate: {', '.join(PRESETS)}."),
    workers: Workers = 2,
) -> None:
    """Write a SIMULATED world in the file layout of a corpus; what is finished is kept."""
    from trajpilot_core.simworld.write import write_world

    if world not in PRESETS:
        raise typer.BadParameter(f"{world!r} is not one of {', '.join(PRESETS)}", param_hint="--world")
    config = PRESETS[world]()
    with Console().status(f"simulating {world}") as status:
        done = write_world(
            config, Path(local_root(folder)), workers, lambda n, total, what: status.update(f"{what}: {n} of {total}")
        )
    typer.echo(
        f"{done.folder}: SIMULATED, layout {config.layout}, {done.n_good} good takes ({done.n_test} of them tested), "
        f"{done.n_broken} broken ones; {done.n_files} files, {done.n_bytes / 2**20:.0f} MB; "
        f"written {done.written}, reused {done.reused}"
    )
