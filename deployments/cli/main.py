"""The `trajpilot` command."""

import io
import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli import deploy, doctor, finished, inspect, predict, run, upkeep, vlm
from trajpilot_core.errors import InputError, TrajPilotError
from trajpilot_core.incoming import text_fault
from trajpilot_core.store.files import advice

app = typer.Typer(
    help="From raw egocentric data sets to the tables of TrajPilot, stage by stage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for function in (
    *(run.run, run.demo, inspect.status, inspect.plan, inspect.config, deploy.ui, deploy.deploy),
    *(upkeep.verify, upkeep.gc, doctor.doctor, finished.compare, finished.paper, predict.predict),
):
    app.command()(function)
app.add_typer(vlm.asking, name="vlm")


def print_version(is_requested: bool) -> None:
    """Print the version and exit, if requested."""
    if is_requested:
        typer.echo(f"trajpilot {metadata.version('trajpilot')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """From raw egocentric data sets to the tables of TrajPilot, stage by stage."""


def main() -> None:
    """Run the command; an error that the user can act on prints one message, not a traceback.

    What the terminal's encoding lacks is printed as `?`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        for number, text in enumerate(sys.argv[1:], 1):
            fault = text_fault(text)  # no record, log or page could contain it
            if fault is not None:
                raise InputError(f"argument {number} contains {fault}; give the folder or file a name in UTF-8")
        app()
    except TrajPilotError as error:
        refuse(f"{type(error).__name__}: {error}")
    except OSError as error:
        if error.filename is None:
            raise
        refuse(f"{type(error).__name__}: cannot use {error.filename}: {error.strerror}; {advice(error)}")


def refuse(message: str) -> NoReturn:
    """Print one message instead of a traceback and exit with 2."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(2)
