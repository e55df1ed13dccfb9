"""The Prefect server that a run starts for itself: on 127.0.0.1, behind its own login. Neither outlives the other."""

import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from deployments.server_check import request
from deployments.settings import STARTUP_TIMEOUT_S, server_environment
from deployments.tethered import SERVER, launch, stop
from trajpilot_core.errors import InputError

TRIES = 3
"""Another process may take a free port before the server binds it."""
LOOK_EVERY_S = 0.2
DRAIN_S = 10.0
LOG, DATABASE = "server.log", "prefect.db"


@contextmanager
def embedded_server(home: Path, ended: Callable[[str], None]) -> Iterator[None]:
    """Run a server on the database in `home`, and point Prefect at it within this block.

    No other user of this machine can use it: the login is generated for every run and never written down.

    Args:
        home: folder of the database and of the server's log.
        ended: ends this process if the server exits before the block does; called with the error message.

    Raises:
        InputError: it does not start.
    """
    login = f"run:{secrets.token_urlsafe(24)}"
    server, url = start(home, login)
    is_over = threading.Event()
    watcher = threading.Thread(target=watch, args=(server, is_over, home / LOG, ended), daemon=True)
    watcher.start()
    try:
        with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: login}):
            try:
                yield
            finally:
                is_over.set()
                watcher.join()
                for worker in (APILogWorker, EventsWorker):  # what is left of logs and events
                    worker.drain_all(timeout=DRAIN_S)
    finally:
        stop(server)


def watch(server: subprocess.Popen[bytes], is_over: threading.Event, log: Path, ended: Callable[[str], None]) -> None:
    """Wait until the block of a server is over; report the server's exit if that comes first.

    Without a server, Prefect would retry for hours and print tracebacks between the lines of the run.
    """
    while not is_over.wait(LOOK_EVERY_S):
        if server.poll() is not None:
            ended(
                f"the Prefect server of this run ended with status {server.returncode} (its log: {log}), so the run "
                "ends, too; finished work is kept: repeat the same command to continue"
            )
            return


def start(home: Path, login: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server and wait until it answers; return its process and the address of its API.

    Raises:
        InputError: it exits at once, or does not answer in time; its database cannot be written.
    """
    open_database(home)
    for _ in range(TRIES):
        port = free_port()
        with (home / LOG).open("wb") as log:
            server = launch([*SERVER, "--no-ui", "--port", str(port)], server_environment(home, login), log)
        url, started = f"http://127.0.0.1:{port}/api", False
        try:
            started = answers(server, url)
        finally:
            if not started:
                stop(server)
        if started:
            return server, url
    raise InputError(
        f"the Prefect server of this run did not start in {TRIES} tries; see {home / LOG}. To use a server of your "
        "own instead, set PREFECT_API_URL"
    )


def open_database(home: Path) -> None:
    """Create the database file if there is none: SQLite would not let a group write it, whatever the umask allows.

    Raises:
        InputError: it cannot be written, as when another user made it.
    """
    path = home / DATABASE
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
    except PermissionError as error:
        raise InputError(
            f"{path} cannot be written. Two users who share a root need a common group, umask 002, and once "
            "`chmod -R g+w` on what is there; or choose another --root, or set PREFECT_API_URL to a server of your own"
        ) from error


def free_port() -> int:
    """Return a port of 127.0.0.1 that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(server: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until the server answers; False if it exited or timed out."""
    limit = time.monotonic() + STARTUP_TIMEOUT_S
    while server.poll() is None and time.monotonic() < limit:
        if request(f"{url}/health", None).status == 200:
            return True
        time.sleep(LOOK_EVERY_S)
    return False
