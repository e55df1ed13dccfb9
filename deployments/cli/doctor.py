"""Command `doctor`: what a run needs compared with what is available. Imports neither torch nor Prefect."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli.inspect import MaybeData, MaybeRecipe, asked
from deployments.cli.options import Device, Root, Set, change, located, run_options
from deployments.cli.tables import coloured, table_of
from deployments.recipes import recipe as named
from schemas.config import PipelineConfig
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.engine.needs import expected, rows_read
from trajpilot_core.engine.settings import recall_run
from trajpilot_core.errors import InputError
from trajpilot_core.stages import stages_of
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.reading import current_manifests

if TYPE_CHECKING:
    from trajpilot_core.doctor.checks import HealthFinding


def doctor(
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus",
            help=f"Check only the download of this corpus, given by --data (or --root): {', '.join(CORPORA)}.",
        ),
    ] = None,
) -> None:
    """Check packages, GPU, memory, disk, root, server, login, corpus, weights; exit with 1 if one would stop a run."""
    from deployments.embedded import check_server
    from deployments.settings import server_login, server_of_deployments
    from trajpilot_core.doctor import checks as checkup
    from trajpilot_core.doctor.weights import check_released, check_weights

    if corpus is not None:
        check_download(corpus, located(data or root), set_)
    address = located(root)
    findings = [checkup.check_packages(), checkup.check_device(device)]
    findings += [checkup.check_root(address), check_server(server_of_deployments(), server_login())]
    if "://" in address and findings[2].verdict == "bad":
        sys.exit(show(findings))  # data and settings are recorded there
    is_given = data is not None or recall_run(address) is not None
    if is_given:
        config, options = asked(root, data, recipe, set_, device)
    else:
        config, options = change(named(recipe or "atomic"), set_), run_options(root=address, device=device)
    folder = open_folder(options.root)
    stages = {name: stage.under(config) for name, stage in stages_of(config).items()}
    outputs = [output for output in current_manifests(folder, stages).values() if output is not None]
    entries = {name: entry for output in outputs for name, entry in output.entries.items()}
    needs = {name: expected(folder, stage, rows_read(stage.reads, entries)) for name, stage in stages.items()}
    findings += checkup.check_needs(needs, device, address)
    if is_given:
        findings += checkup.check_corpus(options.data_root, config.ingest) + check_weights(config)
        findings += check_released(config, options.data_root)
    else:
        todo = "give it with --data, or give the --root of a run"
        findings.append(checkup.HealthFinding("data root", "a download", "not given", "note", todo))
    sys.exit(show(findings))


def check_download(corpus: str, folder: str, changes: list[str]) -> NoReturn:
    """Print what a download of a corpus should contain, what exists, and how to get the rest; needs no run or server.

    Raises InputError: there is no such corpus, or a change refers to no setting.
    """
    from trajpilot_core.doctor.checks import check_corpus

    if corpus not in CORPORA:
        raise InputError(f"no such corpus: {corpus!r}; the corpora are {', '.join(sorted(CORPORA))}")
    base = PipelineConfig()
    config = change(base.replace(ingest=base.ingest.replace(corpus=corpus)), changes)
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
