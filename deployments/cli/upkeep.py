"""Maintenance commands: `verify`, `gc`. They import neither torch nor Prefect."""

import contextlib
import sys
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Console

from deployments.cli.options import Root, existing_root, located
from deployments.cli.tables import say, table_of
from trajpilot_core.engine.needs import size_text
from trajpilot_core.errors import InputError
from trajpilot_core.store import damage, garbage
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import alone
from trajpilot_core.store.reading import stages_of


def verify(
    root: Root = "runs",
    repair: Annotated[
        bool, typer.Option("--repair", help="Delete damaged outputs; the next run recomputes them.")
    ] = False,
) -> None:
    """Read and hash everything that was written under a root; list damage and exit with 1 if there is any."""
    address = located(root)
    if not stages_of(open_folder(address)):
        raise InputError(f"{root} contains no artifact; give the --root of a run")
    with alone(address) if repair else contextlib.nullcontext():
        damaged = damage.verify(address, repair=repair)
    sure, unsure = ([item for item in damaged if item.is_sure == is_sure] for is_sure in (True, False))
    for item in (*sure, *unsure):
        needed = "" if item.path in item.records else f"; needed by {', '.join(item.records)}"
        typer.echo(f"{item.path}: {item.problem}{needed}")
    then = "deleted; run again" if repair else "--repair deletes what depends on them, the next run recomputes it"
    problems = [f"{len(sure):,} damaged or missing under {root}: {then}"] if sure else []
    problems += [f"{len(unsure):,} could not be read: kept"] if unsure else []
    typer.echo("\n".join(problems) or f"everything under {root} is intact")
    sys.exit(1 if problems else 0)


def gc(
    root: Root = "runs",
    yes: Annotated[bool, typer.Option("--yes", help="Delete the files; without this nothing is changed.")] = False,
    keep_h: Annotated[
        float,
        typer.Option("--keep-h", min=0, help="Keep files younger than this, hours: interrupted runs resume from them."),
    ] = 24.0,
) -> None:
    """List files that no manifest refers to any more, and delete them with --yes; refused while a run is active."""
    address = existing_root(root)
    unused = garbage.remove_garbage(address, keep_h) if yes else garbage.find_garbage(address)
    old = [group for group in unused if group.age_h >= keep_h]
    console = Console()
    if old:
        table = table_of(console, ("of", "files", "size"), f"files that no manifest under {root} refers to")
        for group in old:
            table.add_row(group.name, f"{len(group.files):,}", size_text(group.bytes))
        console.print(table)
    if len(old) < len(unused):
        say(console, f"kept: {amount(group for group in unused if group.age_h < keep_h)}, younger than {keep_h:g} h")
    dry = f"dry run: {amount(old)} would be deleted; nothing was changed, --yes deletes them"
    say(console, f"deleted {amount(old)}" if yes else dry)


def amount(groups: Iterable[garbage.Unused]) -> str:
    """Return number and size of files in words."""
    sizes = [(len(group.files), group.bytes) for group in groups]
    return f"{sum(n for n, _ in sizes):,} files, {size_text(sum(size for _, size in sizes))}"
