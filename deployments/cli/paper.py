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
    """Lay finished runs on closed vocabularies out as the paper's tables: LaTeX, CSV, Parquet and a page."""
    from trajpilot_core.studies.paper_tables.cells import cells_of, read_run
    from trajpilot_core.studies.paper_tables.write import write_tables

    for path in write_tables(cells_of([read_run(one) for one in root]), out):
        typer.echo(str(path))
