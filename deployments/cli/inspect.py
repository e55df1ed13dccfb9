"""Commands that only look: `status`, `plan`, `verify`. They import neither torch nor Prefect."""

import sys
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from deployments.cli.options import Data, Force, Recipe, Root, Set, configure, run_options
from deployments.cli.run import located
from trajpilot_core.pipeline import STAGES
from trajpilot_core.stages import plan as planning
from trajpilot_core.stages import status as states
from trajpilot_core.store import verify as verifying


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(status)
    app.command()(plan)
    app.command()(verify)


def status(data: Data, root: Root = Path("runs"), recipe: Recipe = "atomic", set_: Set = []) -> None:  # noqa: B006
    """Say of every stage whether it is fresh, stale or missing, and why."""
    options = run_options(root=str(root.resolve()), data_root=located(data))
    rows = states.status(STAGES, configure(recipe, set_), options)
    table = Table("stage", "state", "rows", "rejected", "written", "seconds", "why", title=f"status of {root}")
    for row in rows:
        numbers = (number(row.rows), number(row.rejected), row.started or "", number(row.seconds))
        table.add_row(row.plan.stage, row.plan.state, *numbers, row.plan.why)
    Console().print(table)


def plan(
    data: Data, root: Root = Path("runs"), recipe: Recipe = "atomic", set_: Set = [], force: Force = [],  # noqa: B006
) -> None:  # fmt: skip
    """Say what a run would compute, in numbers, without computing it."""
    options = run_options(root=str(root.resolve()), data_root=located(data), force=force)
    table = Table("stage", "state", "to compute", "removed", "why", title=f"plan for {root}")
    for row in planning.plan(STAGES, configure(recipe, set_), options):
        units = "unknown" if row.compute is None else f"{row.bound} {row.compute:,}"
        table.add_row(row.stage, row.state, units, number(row.removed), row.why)
    Console().print(table)


def verify(root: Root = Path("runs")) -> None:
    """Read and hash everything that was written under a root; damage is listed and ends with status 1."""
    damage = verifying.verify(str(root.resolve()), repair=False)
    for item in damage:
        typer.echo(f"{item.path}: {item.problem}")
    typer.echo(f"{len(damage)} damaged files under {root}" if damage else f"everything under {root} is whole")
    sys.exit(1 if damage else 0)


def number(value: float | None) -> str:
    """Write a number for a table; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
