"""Commands that write files: `export` and `paper` of finished runs, `convert` of what authors released."""

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
Roots = Annotated[
    list[str], typer.Option("--root", help="Root of a finished run, or ROOT@KEY; one for each benchmark (repeatable).")
]
PaperOut = Annotated[Path, typer.Option("--out", help="Folder of the tables; files of before are replaced.")]
PaperRule = Annotated[
    bool,
    typer.Option(
        "--paper-rule", help="The qualitative figure shows what the paper's rule selects, not windows that are drawn."
    ),
]
Source = Annotated[Path, typer.Argument(metavar="IN.pth", help="The checkpoint as it was downloaded.")]
Target = Annotated[
    Path, typer.Argument(metavar="OUT.safetensors", help="The file to write; its name begins with EgoVLPv2.")
]
converting = typer.Typer(help="Turn released files into files that hold tensors only.", no_args_is_help=True)


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


def paper(root: Roots, out: PaperOut = Path("paper"), paper_rule: PaperRule = False) -> None:
    """Lay finished runs out as the paper's tables and figures: LaTeX, CSV, Parquet, SVG, PDF, and paper.tex."""
    from trajpilot_core.studies.paper_tables.cells import cells_of, plugins_listed, read_run
    from trajpilot_core.studies.paper_tables.figures import FIGURES
    from trajpilot_core.studies.paper_tables.figures.base import HINT, FigureSource, can_draw, undrawn, write_figures
    from trajpilot_core.studies.paper_tables.labels import LABELS
    from trajpilot_core.studies.paper_tables.write import banner, write_document, write_tables

    runs = [read_run(one) for one in root]
    with plugins_listed(runs):
        cells = cells_of(runs)
        made = write_tables(cells, out)
        captions: dict[str, str] = {}
        absent: list[str] = []
        if can_draw():
            drawn, captions = write_figures(FIGURES, FigureSource(cells, runs, paper_rule), out / "figures")
            made, absent = [*made, *drawn], undrawn(FIGURES, captions)
        made = [*made, write_document(tuple(LABELS), captions, banner(cells), out, absent)]
    typer.echo("\n".join([*map(str, made), *(f"{label}: {text}" for label, text in captions.items()), *absent]))
    if not can_draw():
        typer.echo(HINT, err=True)


@converting.callback()
def group() -> None:
    """Keep the group a group while it has one command."""


@converting.command()
def egovlpv2(source: Source, target: Target) -> None:
    """Write the text tower and the projection of EgoVLPv2 as safetensors; nothing in the pickled file is run."""
    from trajpilot_core.encoders.text.egovlp import convert

    about = convert(source, target)
    size_mb = target.stat().st_size / 1e6
    typer.echo(f"{target}: {size_mb:,.0f} MB, from {about['source']} with sha256 {about['source_sha256']}")
    typer.echo("put roberta-base's vocab.json and merges.txt next to it, and set text_bank.model to that folder")
