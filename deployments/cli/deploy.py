"""Commands for a Prefect server: `deploy` sets it up, `ui` shows the runs of a root."""

import contextlib
import secrets
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.options import Root, local_root, located, run_options
from deployments.recipes import recipe as named
from trajpilot_core.errors import InputError, command

LOOK_EVERY_S = 2.0
"""Seconds between two checks for a newer report."""


def deploy(
    data: Annotated[str, typer.Option("--data", envvar="TRAJPILOT_DATA", help="Folder of the corpus.")] = "",
    root: Annotated[str, typer.Option("--root", envvar="TRAJPILOT_ROOT", help="Where runs write.")] = "runs",
    recipe: Annotated[str, typer.Option("--recipe", envvar="TRAJPILOT_RECIPE", help="Named experiment.")] = "atomic",
    group_video_s: Annotated[
        float | None,
        typer.Option(
            "--group-video-s",
            envvar="TRAJPILOT_GROUP_VIDEO_S",
            min=1,
            help="Share features and trajectories out over the workers in groups of this many seconds of video.",
        ),
    ] = None,
) -> None:
    """Deploy to the Prefect server at PREFECT_API_URL: work pools, deployments, the automations for crashes.

    Give paths as the workers see them. They become the defaults of every deployed run.
    """
    from deployments.embedded import require_server
    from deployments.settings import POOLS, prefect_without_noise, server_login, server_of_deployments

    server = server_of_deployments()  # refuses an address with a login first of all
    named(recipe)
    if not data:
        raise InputError(
            "no corpus is given, so every deployed run would fail: give --data DATA, as the workers see it, "
            "or set TRAJPILOT_DATA"
        )
    place = {"data_root": located(data), "root": located(root), "recipe": recipe}
    if group_video_s is not None:
        place["group_video_s"] = f"{group_video_s:g}"
    run_options(**place)
    server = require_server(server, server_login())
    prefect_without_noise()
    from deployments import deploy as deploying

    deploying.deploy(place)
    groups = f", groups of {group_video_s:g} s of video" if group_video_s else ""
    where = f"data {place['data_root']}, root {place['root']}{groups}"
    typer.echo(f"deployed to {server}: recipe {recipe}, {where}")
    for pool in POOLS:
        typer.echo(f"worker:  {command('worker', 'start', '--pool', pool, '--limit', '1', program='prefect')}")
    typer.echo(f"run:     {command('deployment', 'run', 'full-pipeline', program='prefect')}")


def ui(
    root: Root = "runs", port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 4200
) -> None:
    """Serve the Prefect UI for the runs of a root, until Ctrl-C; log in with the printed login.

    Set PREFECT_SERVER_API_AUTH_STRING=name:password for a fixed login. The artifact report-summary of a run links to
    its report.
    """
    from deployments.embedded import open_database
    from deployments.settings import ui_environment, wanted_login
    from deployments.tethered import SERVER, launch, stop

    home = local_root(root) / "prefect"
    if not home.exists():
        raise InputError(f"{home} does not exist: there was no run under {root}; give the --root of a run")
    open_database(home)
    login = wanted_login()
    credentials = login or f"ui:{secrets.token_urlsafe(12)}"
    shown = "your PREFECT_SERVER_API_AUTH_STRING" if login else credentials
    typer.echo(f"Prefect UI of {root}: http://127.0.0.1:{port}   login: {shown}   (Ctrl-C stops it)")
    threading.Thread(target=keep_pages, args=(home,), daemon=True).start()
    server = launch([*SERVER, "--port", str(port)], ui_environment(home, credentials))
    try:
        sys.exit(server.wait())
    except KeyboardInterrupt:
        stop(server)


def keep_pages(home: Path) -> None:
    """Copy new report pages to the UI's folder until this process exits.

    If a page cannot be copied (no space, no permission), the UI keeps the old one and the next check retries.
    """
    from trajpilot_core.report.committed import FOLDER, copy_pages

    while True:
        with contextlib.suppress(OSError):
            copy_pages(home.parent / FOLDER, home)
        time.sleep(LOOK_EVERY_S)
