"""Commands on finished runs: `compare`, `paper`."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli.tables import say, table_of
from schemas.annotation import SIMULATED
from trajpilot_core.errors import InputError
from trajpilot_core.stages import EVERY_STAGE

if TYPE_CHECKING:
    from trajpilot_core.evaluation.comparison import Pairing

SHOWN = 5


def paper(
    root: Annotated[
        list[str],
        typer.Option(
            "--root", help="Root of a finished run (repeatable); the first with a number for a cell fills it."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Output folder; existing files are replaced.")] = Path("paper"),
) -> None:
    """Write finished runs as the paper's tables and figures: LaTeX, CSV, PDF, and paper.tex."""
    from trajpilot_core.studies.paper_tables.cells import cells_of, read_run
    from trajpilot_core.studies.paper_tables.figures import FIGURES
    from trajpilot_core.studies.paper_tables.figures.base import FigureSource, undrawn, write_figures
    from trajpilot_core.studies.paper_tables.labels import LABELS
    from trajpilot_core.studies.paper_tables.write import banner, write_document, write_tables

    runs = [read_run(address) for address in root]
    cells = cells_of(runs)
    files = write_tables(cells, out)
    figures, captions = write_figures(FIGURES, FigureSource(cells, runs), out / "figures")
    absent = undrawn(FIGURES, captions)
    files = [*files, *figures, write_document(tuple(LABELS), captions, banner(cells), out, absent)]
    typer.echo("\n".join([*map(str, files), *(f"{label}: {text}" for label, text in captions.items()), *absent]))


Run = Annotated[str, typer.Argument(help="Root of a run, or ROOT@KEY for an earlier evaluation.")]


def compare(
    first: Run,
    second: Run,
    metric: Annotated[
        list[str], typer.Option("--metric", help="Metric to compare (repeatable): M@1, M@5, MSeq, F@1, F@5, FSeq.")
    ] = ["M@1", "MSeq"],  # noqa: B006
) -> None:
    """Compare settings and metrics of two runs; differences are second - first, paired over takes."""
    from trajpilot_core.evaluation import comparison as comparing
    from trajpilot_core.metrics import with_ceiling

    wrong = [name for name in metric if name not in with_ceiling()]
    if wrong:
        raise InputError(f"--metric {wrong[0]}: no such metric; choose from {', '.join(with_ceiling())} (no plugins)")
    sides = [comparing.open_side(name) for name in (first, second)]
    console = Console()
    if any(SIMULATED in comparing.corpora_of(side) for side in sides):
        console.print("These runs use a SIMULATED world; their numbers say nothing about real data.")
    settings = comparing.settings(sides[0], sides[1], EVERY_STAGE)
    table = table_of(console, ("setting", "first", "second"), "settings that differ")
    for name, values in settings.items():
        table.add_row(escape(name), *map(escape, values))
    console.print(table if settings else "settings: the same")
    show_metrics(console, comparing.metrics(*sides), metric)


def show_metrics(console: Console, pairing: "Pairing", wanted: Sequence[str]) -> None:
    """Print the paired metrics, and what could not be paired."""
    if pairing.unpaired:
        takes = f"{len(pairing.unpaired):,} takes were scored by one run only, or on other windows or labels"
        more = ", ..." if len(pairing.unpaired) > SHOWN else ""
        say(console, f"metrics: {takes}: {', '.join(pairing.unpaired[:SHOWN])}{more}")
    if pairing.of_one:
        say(console, f"metrics: of one run only, left out: {', '.join(pairing.of_one)}")
    if not pairing.metrics:
        console.print("metrics: no take was scored by both runs on the same windows; nothing to compare")
        return
    title = f"metrics on {pairing.n_takes:,} takes, mean over horizons, percent; 95 % intervals over takes"
    table = table_of(console, ("row", "metric", "first", "second", "second - first", "interval", ""), title)
    for row in pairing.metrics:
        if row.metric in wanted:
            verdict = "equal" if row.low == row.high else "undecided"
            verdict = "higher" if row.low > 0 else "lower" if row.high < 0 else verdict
            cells = [f"{row.low:+.2f} to {row.high:+.2f}", verdict]
            if math.isinf(row.low):
                cells = [f"none: {row.n_takes} takes are too few", ""]
            numbers = f"{row.first:.2f}", f"{row.second:.2f}", f"{row.difference:+.2f}"
            table.add_row(row.variant, row.metric, *numbers, *cells)
    console.print(table)
    console.print("Each interval covers one difference: of many, about one in twenty excludes zero by chance.")
