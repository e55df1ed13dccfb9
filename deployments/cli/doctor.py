"""Command `doctor`: what a run needs against what is there. Imports neither torch nor Prefect."""

import sys

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli.inspect import MaybeData, MaybeRecipe, asked
from deployments.cli.options import Device, Root, Set, located, run_options
from deployments.cli.tables import table_of
from trajpilot_core.stages.last import recall_run

NEEDED_BYTES = 2 << 30
"""What a run asks for before it starts."""
STYLES = {"ok": "green", "note": "yellow", "bad": "red"}


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(doctor)


def doctor(
    data: MaybeData = None, root: Root = "runs", recipe: MaybeRecipe = None, set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:  # fmt: skip
    """Look at Python, packages, GPU, memory, disk, server, login and corpus; what stops a run ends with status 1."""
    from deployments.server_check import check_server
    from deployments.settings import server_login, server_of_deployments
    from trajpilot_core import checkup

    place = located(root)
    run_options(root=place, device=device)
    login, has_key = server_login()
    found = [
        checkup.check_python(), *checkup.check_packages(), checkup.check_device(device), checkup.check_memory(),
        *checkup.check_root(place, NEEDED_BYTES),
        *check_server(server_of_deployments(), login, has_key=has_key),
    ]  # fmt: skip
    if data is None and recall_run(place) is None:
        found.append(checkup.Finding("data root", "a download", "not named", "note", "name it with --data"))
    else:
        config, where = asked(root, data, recipe, set_, device)
        found += checkup.check_corpus(where["data_root"], config.ingest) + checkup.check_weights(config)
    console = Console()
    table = table_of(console, ("what", "expected", "found", "", "to do"))
    for row in found:
        verdict = f"[{STYLES[row.verdict]}]{row.verdict}[/]"
        table.add_row(*map(escape, (row.what, row.expected, row.found)), verdict, escape(row.todo))
    console.print(table)
    bad = sum(row.verdict == "bad" for row in found)
    typer.echo(f"{bad} of {len(found)} checks stop a run" if bad else "nothing stops a run")
    sys.exit(1 if bad else 0)
