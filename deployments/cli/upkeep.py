"""Commands that keep a root in order: `verify`, `gc`. They import neither torch nor Prefect."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from deployments.cli.options import Root, located, roots_below
from deployments.cli.tables import disk, say, table_of
from trajpilot_core.command_line import command, shown
from trajpilot_core.errors import InputError
from trajpilot_core.store import garbage
from trajpilot_core.store import verify as verifying
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.history import stages_of
from trajpilot_core.store.inventory import load_inventory, recheck
from trajpilot_core.store.locations import ALLOWED_PROTOCOLS
from trajpilot_core.store.lock import alone

Repair = Annotated[bool, typer.Option("--repair", help="Drop what is damaged; the next run makes it again.")]
Inputs = Annotated[bool, typer.Option("--inputs", help="Read the files of the corpus again, too.")]
Yes = Annotated[bool, typer.Option("--yes", help="Remove it; without this nothing is changed.")]
KeepH = Annotated[
    float, typer.Option("--keep-h", min=0, help="Keep what is younger, hours: an interrupted run resumes from it.")
]
Paths = Annotated[bool, typer.Option("--paths", help="Print every path.")]


def verify(root: Root = "runs", repair: Repair = False, inputs: Inputs = False) -> None:
    """Read and hash everything that was written under a root; damage is listed and ends with status 1."""
    address = located(root)
    if not stages_of(open_folder(address)):
        raise InputError(f"{root} holds no artifact; give the --root of a run{roots_below(root)}")
    with alone(address) if repair else contextlib.nullcontext():
        damage = verifying.verify(address, repair=repair)
    sure, unsure = (damaged_files([item for item in damage if item.is_sure == is_sure]) for is_sure in (True, False))
    read: dict[str, str] = {}
    if inputs:
        inventory = load_inventory(open_folder(address), "", ALLOWED_PROTOCOLS)
        if not inventory.seen:
            raise InputError(f"no file of a corpus was ever read by a run below {address}")
        read = recheck(inventory)
    for path, problem in [*sure.items(), *unsure.items(), *read.items()]:
        typer.echo(f"{path}: {problem}")
    then = "dropped; run again" if repair else "--repair drops what needs them, the next run makes it again"
    problems = [f"{len(sure):,} damaged or missing under {root}: {then}"] if sure else []
    problems += [f"{len(unsure):,} that could not be read: kept"] if unsure else []
    problems += [f"{len(read):,} in the corpus not as read"] if read else []
    whole = f"everything under {root} is whole" + (", and the corpus is as it was read" if inputs else "")
    typer.echo("\n".join(problems) or whole)
    sys.exit(1 if problems else 0)


def damaged_files(damage: list[verifying.Damage]) -> dict[str, str]:
    """Return every file once that is damaged, missing or not to be read, with what needs it."""
    needed: dict[str, list[str]] = {}
    for item in damage:
        for path in item.files:
            needed.setdefault(path, []).append(item.path)
    own = {item.path: item.problem for item in damage if not item.files}
    return own | {path: f"damaged or missing, needed by {', '.join(by)}" for path, by in needed.items()}


def gc(root: Root = "runs", yes: Yes = False, keep_h: KeepH = 24.0, paths: Paths = False) -> None:
    """Show what no manifest names any more, and remove it with --yes; refused while a run or a stage is at work."""
    address = located(root)
    if "://" not in address and not Path(address).is_dir():
        raise InputError(f"{root} is no folder; give the --root of a run")
    found = garbage.remove_garbage(address, keep_h) if yes else garbage.find_garbage(address, keep_h)
    console = Console()
    if found.groups:
        table = table_of(console, ("of", "files", "size"), f"what no manifest under {root} names")
        for group in found.groups:
            table.add_row(group.name, f"{len(group.files):,}", disk(group.bytes))
        console.print(table)
    for path in [path for group in found.groups for path in group.files] if paths else []:
        typer.echo(path)
    for line in notes(found, keep_h, address):
        say(console, line)
    size = disk(sum(group.bytes for group in found.groups))
    n = sum(len(group.files) for group in found.groups)
    dry = f"dry run: {n:,} files, {size} would go; nothing was changed, --yes removes them"
    say(console, f"removed {n:,} files, {size}" if yes else dry)


def notes(found: garbage.Garbage, keep_h: float, root: str) -> list[str]:
    """State what was not touched and why."""
    lines = []
    if found.young:
        size = disk(sum(group.bytes for group in found.young))
        n = sum(len(group.files) for group in found.young)
        lines.append(f"kept: {n:,} files of {len(found.young)} groups, {size}, the youngest of each below {keep_h:g} h")
    lines += [
        f"left alone, damaged: {reason}; see `{command('verify', '--root', shown(root))}`" for reason in found.damaged
    ]
    if found.left:
        first = ", ".join(found.left[:3]) + (", ..." if len(found.left) > 3 else "")
        lines.append(f"left alone, {len(found.left):,} files that are none of the store's: {first}")
    return lines
