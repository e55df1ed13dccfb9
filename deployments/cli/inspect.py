"""Read-only commands: `status`, `plan`, `config`. They import neither torch nor Prefect."""

import json
import shutil
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.console import Console
from rich.markup import escape

from deployments.cli.options import (
    Device,
    Force,
    From,
    Only,
    Recipe,
    Root,
    Set,
    change,
    check_corpus,
    located,
    run_options,
)
from deployments.cli.tables import coloured, number, say, show, table_of, time
from deployments.recipes import recipe as named
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.needs import free_memory, size_text
from trajpilot_core.engine.planning import plan as planning
from trajpilot_core.engine.planning.plan import status as status_rows
from trajpilot_core.engine.settings import recall_run, settings_of
from trajpilot_core.errors import InputError
from trajpilot_core.stages import EVERY_STAGE, stages_of
from trajpilot_core.store.lock import existing_folder

MaybeData = Annotated[
    str | None, typer.Option("--data", help="Folder of the downloaded corpus; default: that of the last run here.")
]
MaybeRecipe = Annotated[
    str | None, typer.Option("--recipe", help="Named experiment; default: the settings of the last run here.")
]


def status(
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Show for every stage whether it is fresh, stale or missing, and why."""
    config, options = asked(root, data and check_corpus(data), recipe, set_, device)
    rows = status_rows(stages_of(config), config, options)
    columns = ("stage", "state", "rows", "rejected", "written (UTC)", "seconds", "why")
    cells = [
        (
            row.plan.stage,
            coloured(row.plan.state),
            number(row.rows),
            number(row.rejected),
            "" if row.started is None else row.started[:16].replace("T", " "),
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
    set_: Set = [],  # noqa: B006
    only: Only = [],  # noqa: B006
    from_: From = None,
    force: Force = [],  # noqa: B006
    device: Device = "auto",
) -> None:
    """Show what a run would compute, in numbers, without computing it."""
    chosen: dict[str, object] = {"only": only, "from_stage": from_, "force": force}
    config, options = asked(root, data and check_corpus(data), recipe, set_, device, **chosen)
    show_plan(config, options if recipe is None else options.replace(recipe=recipe))


def show_plan(config: PipelineConfig, options: RunOptions) -> None:
    """Print what a run would compute, with estimates scaled from the last run."""
    rows = planning.plan(stages_of(config), config, options)
    columns = ("stage", "state", "reused", "to compute", "needs", "why")
    cells = []
    for row in rows:
        why = "" if row.state == "fresh" and row.compute == 0 else row.why
        why = why if row.asked else "; ".join(filter(None, ("not requested", why)))
        cells.append((row.stage, coloured(row.state), *numbers_of(row), why))
    console = Console()
    show(console, columns, cells, f"plan for {options.root}")
    todo = [row for row in rows if row.asked and row.compute != 0]
    if not todo:
        say(console, "nothing to compute")
        return
    known = {row.stage: row.needs for row in todo if row.needs is not None}
    unknown = ", ".join(row.stage for row in todo if row.needs is None)
    text = "total: unknown: a first run"
    if known:  # time and disk of all, memory of the largest
        seconds, size = (sum(getattr(needs, kind) for needs in known.values()) for kind in ("seconds", "disk"))
        most = max(known, key=lambda name: known[name].memory or 0)
        peak = known[most].memory
        memory = f", {size_text(peak)} of memory at most ({most})" if peak else ""
        about = "about" if all(row.bound == "exactly" for row in todo) else "up to"
        text = f"total: {about} {time(seconds)} and {size_text(size)} of disk{memory}"
    if known and unknown:
        text += f"; unknown for {unknown} (first run, or waits for a stage)"
    free, local = free_memory(), existing_folder(Path(options.root)) if "://" not in options.root else None
    amounts = [] if local is None else [f"{size_text(shutil.disk_usage(local).free)} of disk"]
    amounts += [] if free is None else [f"{size_text(free)} of memory"]
    say(console, f"{text}; {' and '.join(amounts)} are free" if amounts else text)


def asked(
    root: str, data: str | None, recipe: str | None, changes: list[str], device: str, **more: object
) -> tuple[PipelineConfig, RunOptions]:
    """Return settings and options for a command: its own settings, data and device, else those of the last run here.

    Raises InputError: no data is given and there was no run, or a setting is wrong.
    """
    last = recall_run(located(root))
    if data is None and last is None:
        raise InputError(f"there was no run below {root}; give the --root of a run, or --data and --recipe")
    data_root = last.data_root if data is None and last is not None else located(data or "")
    is_same_data = last is not None and last.data_root == data_root
    config = last.config if recipe is None and last is not None and is_same_data else named(recipe or "atomic")
    chosen = last.device if last is not None and device == "auto" else device
    options = run_options(root=located(root), data_root=data_root, device=chosen, **more)
    return change(config, changes), options


def numbers_of(row: planning.PlanRow) -> tuple[str, ...]:
    """Format the numbers of one row and what it will take, as far as known; an unrequested stage computes nothing."""
    at_most = row.bound == "at most"
    reused = "unknown" if row.reused is None else f"{'at least ' if at_most else ''}{row.reused:,}"
    if not row.asked:
        return reused, "-", "-"
    if row.compute == 0:
        needs = "-"
    elif row.needs is None:
        needs = "first run: unknown" if row.current is None else "unknown"
    else:
        parts = [("memory", row.needs.memory), ("GPU", row.needs.gpu), ("disk", row.needs.disk)]
        amounts = [time(row.needs.seconds), *(f"{what} {size_text(size)}" for what, size in parts if size)]
        needs = f"{'up to ' if at_most else ''}{', '.join(amounts)}"
    return reused, row.work(), needs


def config(
    group: Annotated[
        str, typer.Argument(help="Prefix of settings, such as features or predictor.train; empty: all.")
    ] = "",
    recipe: Recipe = "atomic",
    set_: Set = [],  # noqa: B006
) -> None:
    """Print every setting: value, allowed values, meaning, and what a change makes stale.

    Where a recipe differs from the paper's main experiment, that value is shown, too.
    """
    known = settings_of(change(named(recipe), set_), EVERY_STAGE)
    chosen = [row for row in known if row.path == group or row.path.startswith(f"{group}." if group else "")]
    if not chosen:
        groups = dict.fromkeys(row.path.partition(".")[0] for row in known)
        raise InputError(f"no setting starts with {group}; the groups are {', '.join(groups)}")
    console = Console()
    for section, members in groupby(chosen, key=lambda row: row.path.partition(".")[0]):
        rows = list(members)
        table = table_of(console, ("setting", "value", "allowed", "meaning"), f"{section} of recipe {recipe}")
        for row in rows:
            value = text(row.value) + (f" (main experiment: {text(row.default)})" if row.is_changed else "")
            table.add_row(row.path, escape(value), escape(row.allowed), escape(row.about))
        console.print(table)
        say(console, f"A change of {section} makes stale at most: {', '.join(rows[0].stages) or 'nothing'}.\n")
    say(console, "Decisions (D 2 and so on): docs/reproduction.md. Change a setting with --set.")


def text(value: JsonValue) -> str:
    """Format a value as --set accepts it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
