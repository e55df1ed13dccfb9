"""Commands about settings: `config show`, `config diff`. They import neither torch nor Prefect."""

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

Group = Annotated[str, typer.Argument(help="Beginning of the settings' names: features, predictor.train; empty: all.")]
Against = Annotated[str, typer.Option("--against", help="Recipe to compare with.")]
settings = typer.Typer(help="Every setting: its value, what is allowed, what it is, and what a change makes stale.")


@settings.command()
def show(
    group: Group = "",
    recipe: Recipe = "atomic",
    config_file: File = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Print every setting of a recipe; values that differ from the paper's main experiment stand next to its own."""
    found = settings_of(configure(recipe, set_, config_file), EVERY_STAGE)
    chosen = [one for one in found if one.path == group or one.path.startswith(f"{group}." if group else "")]
    if not chosen:
        groups = dict.fromkeys(one.path.partition(".")[0] for one in found)
        raise InputError(f"no setting begins with {group}; the groups are {', '.join(groups)}")
    console = Console()
    for section, some in groupby(chosen, key=lambda one: one.path.partition(".")[0]):
        of_section = list(some)
        table = table_of(console, ("setting", "value", "allowed", "what it is"), f"{section} of recipe {recipe}")
        for one in of_section:
            value = text(one.value) + (f" (main experiment: {text(one.default)})" if one.is_changed else "")
            table.add_row(one.path, escape(value), escape(one.allowed), escape(one.about))
        console.print(table)
        say(console, f"A change of {section} makes stale at most: {', '.join(of_section[0].stages) or 'nothing'}.\n")
    say(console, "Decisions (D 2 and so on): docs/reproduction.md. Change a setting with --set or --config.")


@settings.command()
def diff(
    recipe: Recipe = "demo",
    against: Against = "atomic",
    config_file: File = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Print the settings in which two recipes differ, and the stages that have to run again between them."""
    console = Console()
    ours = settings_of(configure(recipe, set_, config_file), EVERY_STAGE)
    theirs = values_of(configure(against, []))
    other = [one for one in ours if one.path not in theirs or theirs[one.path] != one.value]
    own = {one.path for one in ours}
    gone = [path for path in theirs if path not in own and not any(path_of.startswith(f"{path}.") for path_of in own)]
    table = table_of(console, ("setting", recipe, against, "what it is"), f"{recipe} against {against}")
    for one in other:
        table.add_row(
            one.path, escape(text(one.value)), escape(text(theirs.get(one.path, "absent"))), escape(one.about)
        )
    for path in gone:
        table.add_row(path, "absent", escape(text(theirs[path])), "")
    console.print(table)
    stale = {stage for one in other for stage in one.stages}
    last = (
        f"stale between them: {', '.join(name for name in EVERY_STAGE if name in stale)}" if stale else "no difference"
    )
    say(console, f"{len(other) + len(gone)} settings differ; {last}.")


def text(value: JsonValue) -> str:
    """Write a value as --set takes it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
