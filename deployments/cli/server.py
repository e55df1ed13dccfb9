"""Command `ui`: the Prefect UI over the runs of a root."""

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
"""How often the UI looks for a newer report."""


def ui(
    root: Root = "runs",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on 127.0.0.1.")] = 4200,
) -> None:
    """Open the Prefect UI over the runs of a root, until Ctrl-C; it asks for the login that is printed here.

    Set PREFECT_SERVER_API_AUTH_STRING=name:password for a login that stays the same. The artifact report-summary of a
    run opens its report.
    """
    from deployments.settings import ui_environment, wanted_login
    from deployments.tethered import SERVER, launch, stop

    home = local_root(root) / "prefect"
    if not home.exists():
        raise InputError(
            f"{home} is not there: no run was made under {root}; give the --root of a run{roots_below(root)}"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server: a port that was left is free
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise InputError(
                f"port {port} of 127.0.0.1 cannot be used ({error.strerror}); choose another with --port"
            ) from error
    login = wanted_login()
    drawn = login or f"ui:{secrets.token_urlsafe(12)}"
    said = "your PREFECT_SERVER_API_AUTH_STRING" if login else drawn
    typer.echo(f"Prefect UI of {root}: http://127.0.0.1:{port}   login: {said}   (Ctrl-C ends it)")
    threading.Thread(target=keep_pages, args=(home,), daemon=True).start()
    server = launch([*SERVER, "--port", str(port)], ui_environment(home, drawn))
    try:
        sys.exit(server.wait())
    except KeyboardInterrupt:
        stop(server)


def keep_pages(home: Path) -> None:
    """Keep what the UI serves of the reports as new as they are, as long as this process lives.

    A page that cannot be copied (no space, no permission) leaves the UI as it is; the next look tries again.
    """
    from trajpilot_core.report.publish import FOLDER
    from trajpilot_core.report.ui.link import copy_pages

    while True:
        with contextlib.suppress(OSError):
            copy_pages(home.parent / FOLDER, home)
        time.sleep(LOOK_EVERY_S)
