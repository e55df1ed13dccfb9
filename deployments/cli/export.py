"""Command `export`: tables and predictions of a finished run as files, and a window of it as a recording for rerun."""

import re
from pathlib import Path
from typing import Annotated, get_args

import typer
from rich.console import Console

from deployments.cli.tables import say
from trajpilot_core.engine.last_run import recall_run
from trajpilot_core.errors import InputError
from trajpilot_core.export.tables import TableFormat, default_tables, export_tables
from trajpilot_core.opened import OpenRun, open_run

Root = Annotated[str, typer.Option("--root", help="Root of a finished run.")]
Out = Annotated[Path, typer.Option("--out", help="Folder of the files; those of before are replaced.")]
Tables = Annotated[
    list[str], typer.Option("--table", help="Table to export (repeatable); without it results, ids and rejects.")
]
Formats = Annotated[list[str], typer.Option("--format", help="parquet or csv (repeatable); without it both.")]


Rerun = Annotated[
    bool, typer.Option("--rerun", help="In place of tables, a window as .rrd for rerun (pip install '.\\[viz]').")
]
Data = Annotated[str, typer.Option("--data", help="Folder of the corpus, for frames; else that of the last run.")]
Windows = Annotated[
    list[str], typer.Option("--window", help="Window for --rerun (repeatable), an id of the table outcomes.")
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(export)


def export(
    root: Root = "runs/demo",
    out: Out = Path("export"),
    table: Tables = [],  # noqa: B006
    formats: Formats = [],  # noqa: B006
    rerun: Rerun = False,
    window: Windows = [],  # noqa: B006
    data: Data = "",
) -> None:
    """Write tables and predictions of a finished run as Parquet and CSV, or windows of it as recordings for rerun."""
    known = get_args(TableFormat)
    wrong = [one for one in formats if one not in known]
    if wrong:
        raise InputError(f"--format {wrong[0]}: there are {', '.join(known)}")
    run, console = open_run(root), Console()
    if rerun or window:
        write_recordings(run, window, data, out, console)
        return
    asked: list[TableFormat] = [one for one in known if not formats or one in formats]
    made = export_tables(run, table or default_tables(run), asked, out)
    if made.warning:
        say(console, made.warning)
    for one in made.tables:
        say(console, f"{one.name}: {one.rows:,} rows of {one.stage}: {', '.join(one.files)}")
    say(console, f"{out}: {len(made.tables)} tables, described in export.json")


def write_recordings(run: OpenRun, windows: list[str], data: str, out: Path, console: Console) -> None:
    """Write a recording for each window, by default for one, and say how it is looked at."""
    from trajpilot_core.export.recording import SUFFIX, sdk, write_recording
    from trajpilot_core.export.window import first_window, shown_window

    sdk()
    last = recall_run(run.root)
    videos = data or (last.data_root if last else "")
    if run.warning:
        say(console, run.warning)
    for name in windows or [first_window(run)]:
        shown = shown_window(run, name)
        target = out / f"{re.sub(r'[^A-Za-z0-9._-]', '_', name)}{SUFFIX}"
        missing = write_recording(shown, videos, run.warning, target, run.root)
        said = ", ".join(one.kind for one in shown.trajectories) or "none"
        say(console, f"{target}: window {name}; trajectories: {said}")
        for sentence in missing:
            say(console, sentence)
    say(console, f"look at it with `rerun {out}/*{SUFFIX}`")
