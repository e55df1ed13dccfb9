"""The `trajpilot` command."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli import compare, deploy, doctor, evidence, inspect, run, server, upkeep
from trajpilot_core.errors import TrajPilotError

app = typer.Typer(
    help="From raw egocentric data sets to the tables of TrajPilot, stage by stage.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
run.add_to(app)
inspect.add_to(app)
evidence.add_to(app)
server.add_to(app)
deploy.add_to(app)
upkeep.add_to(app)
doctor.add_to(app)
compare.add_to(app)


def main() -> None:
    """Run the command; an error that the user can act on is one message, not a traceback."""
    try:
        app()
    except TrajPilotError as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(
            f"[bold red]error:[/] {type(error).__name__}: {escape(str(error))}"
        )
        sys.exit(2)
