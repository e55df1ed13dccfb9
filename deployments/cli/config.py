"""Commands for settings: `config show`, `config diff`. They import neither torch nor Prefect."""

import json
from itertools import groupby
from typing import Annotated

import typer
from pydantic import JsonValue
from rich.console import Console
from rich.markup import escape

from deployments.cli.options import File, Recipe, Set, configure
from deployments.cli.tables import say, table_of
from trajpilot_core.engine.settings import settings_of, values_of
from trajpilot_core.errors import InputError
from trajpilot_core.stages import EVERY_STAGE

settings = typer.Typer(help="Every setting: value, allowed values, meaning, and what a change makes stale.")


@settings.command()
def show(
    group: Annotated[
        str, typer.Argument(help="Prefix of settings, such as features or predictor.train; empty: all.")
    ] = "",
    recipe: Recipe = "atomic",
    config_file: File = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Print every setting of a recipe; where it differs from the paper's main experiment, that value is shown, too."""
    known = settings_of(configure(recipe, set_, config_file), EVERY_STAGE)
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
    say(console, "Decisions (D 2 and so on): docs/reproduction.md. Change a setting with --set or --config.")


@settings.command()
def diff(
    recipe: Recipe = "demo",
    against: Annotated[str, typer.Option("--against", help="Recipe to compare with.")] = "atomic",
    config_file: File = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Print the settings in which two recipes differ, and the stages that these differences make stale."""
    console = Console()
    ours = settings_of(configure(recipe, set_, config_file), EVERY_STAGE)
    theirs = values_of(configure(against, []))
    changed = [row for row in ours if row.path not in theirs or theirs[row.path] != row.value]
    paths = {row.path for row in ours}
    absent = [path for path in theirs if path not in paths and not any(p.startswith(f"{path}.") for p in paths)]
    table = table_of(console, ("setting", recipe, against, "meaning"), f"{recipe} against {against}")
    for row in changed:
        values = text(row.value), text(theirs.get(row.path, "absent")), row.about
        table.add_row(row.path, *map(escape, values))
    for path in absent:
        table.add_row(path, "absent", escape(text(theirs[path])), "")
    console.print(table)
    stale = {stage for row in changed for stage in row.stages}
    names = ", ".join(name for name in EVERY_STAGE if name in stale)
    say(console, f"{len(changed) + len(absent)} settings differ; {f'stale: {names}' if stale else 'no difference'}.")


def text(value: JsonValue) -> str:
    """Format a value as --set accepts it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
