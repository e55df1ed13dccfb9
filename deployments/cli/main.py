"""The `trajpilot` command."""

import sys
from importlib import metadata
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli import (
    compare,
    config,
    convert,
    deploy,
    doctor,
    export,
    inspect,
    paper,
    poses,
    predict,
    run,
    server,
    simulate,
    upkeep,
    vlm,
    workers,
)
from deployments.settings import hand_over_store_limit
from trajpilot_core.errors import InputError, TrajPilotError
from trajpilot_core.incoming import text_fault
from trajpilot_core.store.files import advice

app = typer.Typer(
    help="From raw egocentric data sets to the tables of TrajPilot, stage by stage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
run.add_to(app)
simulate.add_to(app)
inspect.add_to(app)
server.add_to(app)
deploy.add_to(app)
workers.add_to(app)
upkeep.add_to(app)
doctor.add_to(app)
convert.add_to(app)
compare.add_to(app)
export.add_to(app)
config.add_to(app)
paper.add_to(app)
predict.add_to(app)
poses.add_to(app)
vlm.add_to(app)


def print_version(asked: bool) -> None:
    """Print the version and end, where it is asked for."""
    if asked:
        typer.echo(f"trajpilot {metadata.version('trajpilot')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=print_version)
    ] = False,
) -> None:
    """From raw egocentric data sets to the tables of TrajPilot, stage by stage."""
    hand_over_store_limit()


def main() -> None:
    """Run the command; an error that the user can act on is one message, not a traceback."""
    try:
        check_arguments(sys.argv[1:])
        app()
    except TrajPilotError as error:
        refuse(f"{type(error).__name__}: {error}")
    except OSError as error:
        if error.filename is None:
            raise
        refuse(f"{type(error).__name__}: cannot use {error.filename}: {error.strerror}; {advice(error)}")


def check_arguments(arguments: list[str]) -> None:
    """Refuse arguments that no record, log or page could hold: every place and every name comes in here.

    Raises:
        InputError: one is not UTF-8.
    """
    for number, text in enumerate(arguments, 1):
        fault = text_fault(text)
        if fault is not None:
            raise InputError(f"argument {number} holds {fault}; give the folder or file a name in UTF-8")


def refuse(message: str) -> NoReturn:
    """Print one message in place of a traceback and end with 2."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"[bold red]error:[/] {escape(message)}")
    sys.exit(2)
