"""Commands that only look: `status`, `plan`. They import neither torch nor Prefect."""

import contextlib
import gc
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deployments.cli.needs import show_planned
from deployments.cli.options import (
    Device,
    File,
    Force,
    From,
    Only,
    Root,
    Set,
    change,
    check_corpus,
    located,
    roots_below,
    run_options,
)
from deployments.cli.tables import disk, moment, number, say, show, time
from deployments.recipes import recipe as named
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.last_run import recall_run
from trajpilot_core.engine.planning import plan as planning
from trajpilot_core.engine.planning import status as states
from trajpilot_core.engine.planning.estimate import NOTHING
from trajpilot_core.errors import InputError
from trajpilot_core.stages import stages_of

MaybeData = Annotated[
    str | None, typer.Option("--data", help="Folder of the downloaded corpus; without it that of the last run here.")
]
MaybeRecipe = Annotated[
    str | None, typer.Option("--recipe", help="Named experiment; without it the settings of the last run here.")
]
STYLES = {"fresh": "green", "stale": "yellow", "missing": "red", "unknown": "magenta"}
LEAST_S = 1.0
"""Work that is to be done never takes no time."""


def status(
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    config_file: File = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Report for every stage whether it is fresh, stale or missing, and why."""
    config, where = asked(root, data and check_corpus(data), recipe, set_, device, config_file)
    options = run_options(root=located(root), **where)
    with no_collector():
        rows = states.status(stages_of(config), config, options)
    columns = ("stage", "state", "rows", "rejected", "written (UTC)", "seconds", "why")
    cells = [
        (
            row.plan.stage,
            coloured(row.plan.state),
            number(row.rows),
            number(row.rejected),
            moment(row.started),
            number(row.seconds),
            "" if row.plan.state == "fresh" else row.plan.why,
        )
        for row in rows
    ]
    show(Console(), columns, cells, f"status of {root}")


def plan(
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    config_file: File = None,
    set_: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    from_: From = None,
    force: Force = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """State what a run would compute, in numbers, without computing it."""
    config, where = asked(root, data and check_corpus(data), recipe, set_, device, config_file)
    options = run_options(root=located(root), only=only, from_stage=from_, force=force, **where)
    if recipe is not None:
        options = options.replace(recipe=recipe)
    show_plan(config, options)


def show_plan(config: PipelineConfig, options: RunOptions) -> None:
    """Print what a run would compute, what its stages need, and how long it may take."""
    with no_collector():
        rows = planning.plan(stages_of(config), config, options)
    columns = ("stage", "state", "reused", "to compute", "removed", "rejected", "time", "disk", "why")
    why = ["" if row.state == "fresh" and row.compute == 0 else row.why for row in rows]
    why = [
        text if row.asked else "; ".join(filter(None, ("not asked for", text)))
        for row, text in zip(rows, why, strict=True)
    ]
    cells = [(row.stage, coloured(row.state), *numbers_of(row), text) for row, text in zip(rows, why, strict=True)]
    console = Console()
    todo = [row.stage for row in rows if row.asked and row.compute != 0]
    show(console, columns, cells, f"plan for {options.root}")
    show_planned(console, todo, config, options, {row.stage: row.current for row in rows})
    say(console, total([row for row in rows if row.asked], options.root))


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
    root: str, data: str | None, recipe: str | None, changes: list[str], device: str, file: Path | None
) -> tuple[PipelineConfig, dict[str, str]]:
    """Return the settings and the place that a command asks about: what it says, else what the last run here had.

    Raises:
        InputError: no data is named and no run is remembered, or a setting is wrong.
    """
    last = recall_run(located(root))
    if data is None and last is None:
        raise InputError(
            f"no run below {root} is remembered; give the --root of a run{roots_below(root)}, or name the corpus with "
            "--data, and the --recipe"
        )
    data_root = last.data_root if data is None and last is not None else located(data or "")
    is_about_it = last is not None and (data is None or last.data_root == data_root)
    config = last.config if recipe is None and last is not None and is_about_it else named(recipe or "atomic")
    chosen = last.device if last is not None and device == "auto" else device
    return change(config, changes, file), {"data_root": data_root, "device": chosen}


def numbers_of(row: planning.PlanRow) -> tuple[str, ...]:
    """Write the numbers of one row: what is not asked for costs nothing and computes nothing."""
    at_most = row.bound == "at most"
    reused = "unknown" if row.reused is None else f"{'at least ' if at_most else ''}{row.reused:,}"
    rejected = "unknown" if row.rejected is None else f"{'' if row.compute == 0 else 'at least '}{row.rejected:,}"
    if not row.asked:
        return reused, "-", "-", rejected, "-", "-"
    cost = [time(row.cost.seconds), disk(row.cost.bytes)]
    return (
        reused,
        row.work(),
        "unknown" if row.removed is None else number(row.removed),
        rejected,
        *(f"up to {text}" if at_most and text != "unknown" else text for text in cost),
    )


def total(rows: list[planning.PlanRow], root: str) -> str:
    """State what all requested stages need together, and how much of that is known."""
    todo = [row for row in rows if row.compute != 0]
    if not todo:
        return "nothing to compute"
    cost = NOTHING
    for row in rows:
        cost = cost.plus(row.cost)
    unknown = [row.stage for row in todo if None in (row.cost.seconds, row.cost.bytes)]
    bound = "about" if all(row.bound == "exactly" for row in todo) else "up to"
    if len(unknown) == len(todo):
        known, rest = "in all: unknown; nothing that is to be computed ever ran below this root", ""
    else:
        known = f"in all: {bound} {time(max(cost.seconds or 0.0, LEAST_S))} and {disk(cost.bytes)}"
        rest = f", and more for {', '.join(unknown)}: unknown, never ran here or waits for a stage" if unknown else ""
    if "://" in root:
        return known + rest
    existing = next(folder for folder in (Path(root), *Path(root).parents) if folder.exists())
    return f"{known}{rest}; {disk(shutil.disk_usage(existing).free)} are free"


def coloured(state: str) -> str:
    """Write a state in its colour."""
    return f"[{STYLES[state]}]{state}[/]"
