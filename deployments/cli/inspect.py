"""Commands that only look: `status`, `plan`. They import neither torch nor Prefect."""

import contextlib
import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from deployments.cli.options import Device, Force, From, Only, Root, Set, change, run_options
from deployments.cli.run import located
from deployments.recipes import recipe as named
from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.pipeline import STAGES
from trajpilot_core.stages import plan as planning
from trajpilot_core.stages import status as states
from trajpilot_core.stages.estimate import NOTHING
from trajpilot_core.stages.last import LastRun, recall_run

MaybeData = Annotated[
    str | None, typer.Option("--data", help="Folder of the downloaded corpus; without it that of the last run here.")
]
MaybeRecipe = Annotated[
    str | None, typer.Option("--recipe", help="Named experiment; without it the settings of the last run here.")
]
STYLES = {"fresh": "green", "stale": "yellow", "missing": "red", "unknown": "magenta"}


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(status)
    app.command()(plan)


def status(
    data: MaybeData = None, root: Root = Path("runs"), recipe: MaybeRecipe = None, set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:  # fmt: skip
    """Say of every stage whether it is fresh, stale or missing, and why."""
    config, where = asked(root, data, recipe, set_, device)
    options = run_options(root=str(root.resolve()), **where)
    table = Table("stage", "state", "rows", "rejected", "written", "seconds", "why", title=f"status of {root}")
    with no_collector():
        rows = states.status(STAGES, config, options)
    for row in rows:
        numbers = (number(row.rows), number(row.rejected), row.started or "", number(row.seconds))
        table.add_row(row.plan.stage, coloured(row.plan.state), *numbers, escape(row.plan.why))
    Console().print(table)


def plan(
    data: MaybeData = None, root: Root = Path("runs"), recipe: MaybeRecipe = None, set_: Set = [],  # noqa: B006
    only: Only = [], from_: From = None, force: Force = [], device: Device = "auto",  # noqa: B006
) -> None:  # fmt: skip
    """Say what a run would compute, in numbers, without computing it."""
    config, where = asked(root, data, recipe, set_, device)
    options = run_options(root=str(root.resolve()), only=only, from_stage=from_, force=force, **where)
    columns = ("stage", "state", "reused", "to compute", "removed", "rejected", "time", "disk", "why")
    table = Table(*columns, title=f"plan for {root}")
    with no_collector():
        rows = planning.plan(STAGES, config, options)
    for row in rows:
        why = row.why if row.asked else f"not asked for; {row.why}"
        table.add_row(row.stage, coloured(row.state), *numbers_of(row), escape(why))
    console = Console()
    console.print(table)
    console.print(total([row for row in rows if row.asked], root), highlight=False, soft_wrap=True)


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Do without the collection of cycles: among the million small objects of a large corpus it costs a second."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def asked(
    root: Path, data: str | None, recipe: str | None, changes: list[str], device: str
) -> tuple[PipelineConfig, dict[str, str]]:
    """Return the settings and the place that a command asks about: what it says, else what the last run here had.

    Raises:
        InputError: no data is named and no run is remembered, or a setting is wrong.
    """
    last = recall_run(str(root.resolve()))
    if data is None and last is None:
        raise InputError(f"no run below {root} is remembered; name the corpus with --data, and the --recipe")
    place = last.data_root if data is None and last is not None else located(data or "")
    config = base_config(last if data is None else same_data(last, place), recipe)
    chosen = last.device if last is not None and device == "auto" else device
    return change(config, changes), {"data_root": place, "device": chosen}


def same_data(last: LastRun | None, place: str) -> LastRun | None:
    """Return the last run if it was about this corpus."""
    return last if last is not None and last.data_root == place else None


def base_config(last: LastRun | None, recipe: str | None) -> PipelineConfig:
    """Return the settings of a named recipe, else those of the last run, else the paper's main experiment."""
    return last.config if recipe is None and last is not None else named(recipe or "atomic")


def numbers_of(row: planning.PlanRow) -> tuple[str, ...]:
    """Write the numbers of one row: what is not asked for costs nothing and computes nothing."""
    at_most = row.bound == "at most"
    reused = "unknown" if row.reused is None else f"{'at least ' if at_most else ''}{row.reused:,}"
    rejected = "unknown" if row.rejected is None else f"{'' if row.compute == 0 else 'at least '}{row.rejected:,}"
    if not row.asked:
        return reused, "-", "-", rejected, "-", "-"
    front = "up to " if at_most else ""
    return (
        reused,
        row.work(),
        number(row.removed),
        rejected,
        front + time(row.cost.seconds),
        front + disk(row.cost.bytes),
    )


def total(rows: list[planning.PlanRow], root: Path) -> str:
    """Say what all stages that are asked for take together, and how much of that is known."""
    todo = [row for row in rows if row.compute != 0]
    if not todo:
        return "nothing to compute"
    cost = NOTHING
    for row in rows:
        cost = cost.plus(row.cost)
    unknown = [row.stage for row in todo if row.cost.seconds is None]
    bound = "about" if all(row.bound == "exactly" for row in todo) else "up to"
    known = f"in all: {bound} {time(cost.seconds)} and {disk(cost.bytes)}"
    rest = f", and what {', '.join(unknown)} take: that never ran here or waits for a stage" if unknown else ""
    place = next(folder for folder in (root.resolve(), *root.resolve().parents) if folder.exists())
    return f"{known}{rest}; {disk(shutil.disk_usage(place).free)} are free"


def coloured(state: str) -> str:
    """Write a state in its colour."""
    return f"[{STYLES[state]}]{state}[/]"


def time(seconds: float | None) -> str:
    """Write a duration for people."""
    if seconds is None:
        return "unknown"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def disk(size: float | None) -> str:
    """Write a number of bytes for people."""
    if size is None:
        return "unknown"
    for unit, step in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= step:
            return f"{size / step:.1f} {unit}"
    return f"{size:.0f} B"


def number(value: float | None) -> str:
    """Write a number for a table; nothing for None."""
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
