"""The Prefect server that a run starts for itself: on 127.0.0.1, behind a login of its own, ended by its process id."""

import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from deployments.server_check import request
from deployments.settings import STARTUP_TIMEOUT_S, remember_server, server_environment
from trajpilot_core.errors import InputError

TRIES = 3
"""A free port may be occupied before the server has it."""
LOOK_EVERY_S = 0.2
DRAIN_S = 10.0
END_S = 5.0
LOG = "server.log"


@contextmanager
def embedded_server(home: Path) -> Iterator[None]:
    """Run a server over the database in `home` and send everything of this block to it.

    No other user of this machine can use it: the login is generated for every run and written nowhere.

    Raises:
        InputError: it does not start.
    """
    login = f"run:{secrets.token_urlsafe(24)}"
    server, url = start(home, login)
    try:
        with temporary_settings({PREFECT_API_URL: url, PREFECT_API_AUTH_STRING: login}):
            try:
                yield
            finally:
                drain()
    finally:
        stop(server)
        (home / "server.pid").unlink(missing_ok=True)


def start(home: Path, login: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start the server and wait until it answers; return its process and the address of its API.

    Raises:
        InputError: it ends at once, or does not answer in time.
    """
    for _ in range(TRIES):
        port = free_port()
        server = launch(home, login, port)
        remember_server(home, server.pid)
        url, started = f"http://127.0.0.1:{port}/api", False
        try:
            started = answers(server, url)
        finally:
            if not started:
                stop(server)
        if started:
            return server, url
    raise InputError(
        f"the Prefect server of this run did not start in {TRIES} tries; {home / LOG} says why. A server of your "
        "own is used instead where PREFECT_API_URL names one"
    )


def launch(home: Path, login: str, port: int) -> subprocess.Popen[bytes]:
    """Start the server's process in a session of its own: Ctrl-C is for the run, which then ends the server."""
    command = [sys.executable, "-m", "prefect", "--no-prompt", "server", "start", "--no-ui"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with (home / LOG).open("wb") as log:
        return subprocess.Popen(
            command,
            env=server_environment(home, login),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def free_port() -> int:
    """Return a port of 127.0.0.1 that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(server: subprocess.Popen[bytes], url: str) -> bool:
    """Wait until the server answers; False where it ended or the time is over."""
    limit = time.monotonic() + STARTUP_TIMEOUT_S
    while server.poll() is None and time.monotonic() < limit:
        if request(f"{url}/health", None).status == 200:
            return True
        time.sleep(LOOK_EVERY_S)
    return False


def stop(server: subprocess.Popen[bytes]) -> None:
    """End the server by its process id."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def drain() -> None:
    """Send what is left of logs and events to the server."""
    APILogWorker.drain_all(timeout=DRAIN_S)
    EventsWorker.drain_all(timeout=DRAIN_S)
