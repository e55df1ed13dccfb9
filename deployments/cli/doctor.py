"""Command `doctor`: what a run needs compared with what is available. Imports neither torch nor Prefect."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from deployments.cli.inspect import MaybeData, MaybeRecipe, asked
from deployments.cli.options import Device, File, Root, Set, change, located, roots_below, run_options
from deployments.cli.tables import coloured, table_of
from deployments.recipes import recipe as named
from schemas.config import PipelineConfig
from trajpilot_core.corpora.registry import CORPORA
from trajpilot_core.engine.needs import expected, rows_read
from trajpilot_core.engine.resolve import resolve_device
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
    config_file: File = None,
    set_: Set = [],  # noqa: B006
    device: Device = "auto",
    corpus: Annotated[
        str | None,
        typer.Option(
            "--corpus",
            help=f"Check only the download of this corpus, given by --root (or --data): {', '.join(CORPORA)}.",
        ),
    ] = None,
) -> None:
    """Check packages, GPU, memory, disk, server, login and corpus; exit with 1 if a check would stop a run."""
    from deployments.embedded import check_server
    from deployments.settings import server_login, server_of_deployments
    from trajpilot_core.doctor import checks as checkup
    from trajpilot_core.doctor.weights import check_released_files, check_weights

    if corpus is not None:
        check_download(corpus, located(data or root), set_, config_file)
    address = located(root)
    server = check_server(server_of_deployments(), server_login())
    findings = [*checkup.check_packages(), checkup.check_device(device)]
    if "://" in address:
        root_findings = checkup.check_root(address)
        if any(row.verdict == "bad" for row in root_findings):
            sys.exit(show([*findings, *root_findings, *server]))  # the corpus is recorded there
    is_given = data is not None or recall_run(address) is not None
    if is_given:
        config, options = asked(root, data, recipe, set_, device, config_file)
    else:
        config = change(named(recipe or "atomic"), set_, config_file)
        options = run_options(root=address, device=device)
    folder = open_folder(options.root, options.protocols)
    stages = {name: stage.under(config) for name, stage in stages_of(config).items()}
    outputs = [output for output in current_manifests(folder, stages).values() if output is not None]
    entries = {name: entry for output in outputs for name, entry in output.entries.items()}
    needs = {name: expected(folder, stage, rows_read(stage.reads, entries)) for name, stage in stages.items()}
    try:
        used = resolve_device(options.device)
    except InputError:  # absent, as its own check reports
        used = "cpu"
    findings += [*checkup.check_needs(needs, used, options.root), *checkup.check_root(options.root), *server]
    if not is_given:
        below = roots_below(root)
        hint = f", or give the --root of a run{below}" if below else ""
        todo = f"give it with --data{hint}"
        findings.append(checkup.HealthFinding("data root", "a download", "not given", "note", todo))
    else:
        findings += checkup.check_corpus(options.data_root, config.ingest) + check_weights(config)
        findings += check_released_files(config, options.data_root)
    sys.exit(show(findings))


def check_download(corpus: str, folder: str, changes: list[str], file: Path | None) -> NoReturn:
    """Print what a download of a corpus should contain, what exists, and how to get the rest; needs no run or server.

    Raises:
        InputError: there is no such corpus, or a change refers to no setting.
    """
    from trajpilot_core.doctor import checks as checkup

    if corpus not in CORPORA:
        raise InputError(f"no such corpus: {corpus!r}; the corpora are {', '.join(sorted(CORPORA))}")
    base = PipelineConfig()
    config = change(base.replace(ingest=base.ingest.replace(corpus=corpus)), changes, file)
    spec, download = CORPORA[corpus], CORPORA[corpus].download
    typer.echo(f"{spec.title} at {folder}")
    for lack in spec.lacks():
        typer.echo(f"it provides no {lack}")
    findings = checkup.check_corpus(folder, config.ingest)
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
