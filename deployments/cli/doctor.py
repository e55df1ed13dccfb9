"""Command `doctor`: whether a download is complete. Imports neither torch nor Prefect."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli.options import Set, change, located
from deployments.cli.tables import coloured, table_of
from schemas.config import PipelineConfig
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.errors import InputError

if TYPE_CHECKING:
    from trajpilot_core.doctor.checks import HealthFinding


def doctor(
    corpus: Annotated[str, typer.Option("--corpus", help=f"The corpus: {', '.join(CORPORA)}.")],
    data: Annotated[str, typer.Option("--data", help="Folder of the download.")],
    set_: Set = [],  # noqa: B006
) -> None:
    """Check a download and print how to get what is missing; exit with 1 if a run would stop.

    What else a run needs (GPU, weights, models) is checked by `trajpilot run --dry-run`.
    """
    from trajpilot_core.doctor.checks import check_corpus

    if corpus not in CORPORA:
        raise InputError(f"no such corpus: {corpus!r}; the corpora are {', '.join(sorted(CORPORA))}")
    base, folder = PipelineConfig(), located(data)
    config = change(base.replace(ingest=base.ingest.replace(corpus=corpus)), set_)
    spec, download = CORPORA[corpus], CORPORA[corpus].download
    typer.echo(f"{spec.title} at {folder}")
    for lack in spec.lacks():
        typer.echo(f"it provides no {lack}")
    findings = check_corpus(folder, config.ingest)
    status = show(findings)
    if any(row.verdict != "ok" for row in findings):
        typer.echo(f"how to get it (docs/data.md): {download.access.replace('ROOT', folder)}")
        for command in download.commands_for(folder, with_videos=config.ingest.video != "none"):
            typer.echo(f"    {command}")
    sys.exit(status)


def show(findings: "Sequence[HealthFinding]") -> int:
    """Print the findings as a table, what to do, and a summary; return the exit status, 1 if one would stop a run."""
    console = Console()
    table = table_of(console, ("what", "expected", "found", ""))
    for row in findings:
        table.add_row(*map(escape, (row.what, row.expected, row.found)), coloured(row.verdict))
    console.print(table)
    for todo in dict.fromkeys(row.todo for row in findings if row.todo):
        typer.echo(f"to do, {', '.join(row.what for row in findings if row.todo == todo)}: {todo}")
    bad = sum(row.verdict == "bad" for row in findings)
    typer.echo(f"{bad} of {len(findings)} checks would stop a run" if bad else "nothing would stop a run")
    return min(bad, 1)
