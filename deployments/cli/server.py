"""Command `ui`: the Prefect UI for the runs of a root."""

import contextlib
import secrets
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.options import Root, local_root, roots_below
from trajpilot_core.errors import InputError

LOOK_EVERY_S = 2.0
"""Seconds between two checks for a newer report."""


def ui(
    root: Root = "runs",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 4200,
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
        raise InputError(
            f"{home} does not exist: there was no run under {root}; give the --root of a run{roots_below(root)}"
        )
    open_database(home)
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # like the server: a recently closed port is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(
                f"port {port} of 127.0.0.1 cannot be used ({error.strerror}); choose another with --port"
            ) from error
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
    from trajpilot_core.report.publish import FOLDER
    from trajpilot_core.report.ui.link import copy_pages

    while True:
        with contextlib.suppress(OSError):
            copy_pages(home.parent / FOLDER, home)
        time.sleep(LOOK_EVERY_S)
