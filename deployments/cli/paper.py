"""Command `paper`: finished runs as the paper's tables and figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trajpilot_core.studies.paper_tables.base import PaperRun

Roots = Annotated[
    list[str], typer.Option("--root", help="Root of a finished run, or ROOT@KEY; one for each benchmark (repeatable).")
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the tables; files of before are replaced.")]
PaperRule = Annotated[
    bool,
    typer.Option(
        "--paper-rule", help="The qualitative figure shows what the paper's rule selects, not windows that are drawn."
    ),
]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(paper)


def paper(root: Roots, out: Out = Path("paper"), paper_rule: PaperRule = False) -> None:
    """Lay finished runs out as the paper's tables and figures: LaTeX, CSV, Parquet, SVG, PDF, and paper.tex."""
    from trajpilot_core.studies.paper_tables.cells import plugins_listed, read_run

    runs = [read_run(one) for one in root]
    with plugins_listed(runs):
        lay_out(runs, out, paper_rule)


def lay_out(runs: "Sequence[PaperRun]", out: Path, paper_rule: bool) -> None:
    """Write the tables and figures of some runs, and say where they lie."""
    from trajpilot_core.studies.paper_tables.cells import cells_of
    from trajpilot_core.studies.paper_tables.figures import FIGURES
    from trajpilot_core.studies.paper_tables.figures.base import HINT, FigureSource, can_draw, undrawn, write_figures
    from trajpilot_core.studies.paper_tables.labels import LABELS
    from trajpilot_core.studies.paper_tables.write import banner, write_document, write_tables

    cells = cells_of(runs)
    made = write_tables(cells, out)
    captions: dict[str, str] = {}
    if can_draw():
        drawn, captions = write_figures(FIGURES, FigureSource(cells, runs, paper_rule), out / "figures")
        made += drawn
    absent = undrawn(FIGURES, captions) if can_draw() else []
    for path in (*made, write_document(tuple(LABELS), captions, banner(cells), out, absent)):
        typer.echo(str(path))
    for label, caption in captions.items():
        typer.echo(f"{label}: {caption}")
    for sentence in absent:
        typer.echo(sentence)
    if not can_draw():
        typer.echo(HINT, err=True)
