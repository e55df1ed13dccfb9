"""Command `paper`: finished runs as the paper's tables."""

from pathlib import Path
from typing import Annotated

import typer

Roots = Annotated[
    list[str], typer.Option("--root", help="Root of a finished run, or ROOT@KEY; one for each benchmark (repeatable).")
]
Out = Annotated[Path, typer.Option("--out", help="Folder of the tables; files of before are replaced.")]


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(paper)


def paper(root: Roots, out: Out = Path("paper")) -> None:
    """Lay finished runs out as the paper's tables: LaTeX, CSV, Parquet, a page, and paper.tex, which compiles."""
    from trajpilot_core.studies.paper_tables.cells import cells_of, read_run
    from trajpilot_core.studies.paper_tables.labels import LABELS
    from trajpilot_core.studies.paper_tables.write import banner, write_document, write_tables

    cells = cells_of([read_run(one) for one in root])
    for path in (*write_tables(cells, out), write_document(tuple(LABELS), {}, banner(cells), out)):
        typer.echo(str(path))
