"""The Prefect server that a run starts for itself, on 127.0.0.1 behind its own login, and the check of any other.

Neither server nor run outlives the other.
"""

import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from deployments.settings import STARTUP_TIMEOUT_S, server_environment
from deployments.tethered import SERVER, launch, stop
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.errors import InputError

TIMEOUT_S = 15.0
"""A busy server on a small machine can need seconds to answer."""
TRIES = 3
"""Another process may take a free port before the server binds it."""
LOOK_EVERY_S = 0.2
DRAIN_S = 10.0
LOG, DATABASE = "server.log", "prefect.db"


def require_server(url: str | None, login: str | None) -> str:
    """Require a server at the user's API address that accepts the `Authorization` header `login`; return the address.

    Raises InputError: there is none, or it does not; the message states what to do and never repeats the login.
    """
    if url is None:
        raise InputError(
            "PREFECT_API_URL is not set, so there is no server; start one with `prefect server start` and set "
            "PREFECT_API_URL=http://127.0.0.1:4200/api (docs/operations.md, Start)"
        )
    status, answer = request(f"{url}/health", None)
    todo = "start it, or correct PREFECT_API_URL"
    if status == HTTPStatus.OK:
        status, answer = request(f"{url}/deployments/filter", login, {})
        todo = "see its log"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        answer = "it rejects this login" if login else "it needs a login, and none is set"
        todo = "set PREFECT_API_AUTH_STRING to its PREFECT_SERVER_API_AUTH_STRING; for Prefect Cloud PREFECT_API_KEY"
    if status != HTTPStatus.OK:
        raise InputError(f"the Prefect server at {url}: {answer}; {todo}")
    return url


def check_server(url: str | None, login: str | None) -> HealthFinding:
    """Check the server of the user's own and the login; arguments as of `require_server`."""
    if url is None:
        return HealthFinding("server", "none needed", "a run starts its own", "ok")
    expected = "answers and accepts the login"
    try:
        return HealthFinding("server", expected, require_server(url, login), "ok")
    except InputError as error:
        return HealthFinding("server", expected, url, "bad", str(error))


def request(url: str, login: str | None, body: dict[str, Any] | None = None) -> tuple[int, str]:
    """Send a request, a POST if it has a body; return the HTTP status (0: no answer) and its description.

    Redirects are not followed: the login would be sent along.
    """
    headers = {} if login is None else {"Authorization": login}
    try:
        answer = httpx.request("GET" if body is None else "POST", url, json=body, headers=headers, timeout=TIMEOUT_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return 0, f"no answer ({error})"
    return answer.status_code, f"HTTP {answer.status_code}"


@contextmanager
def embedded_server(home: Path, ended: Callable[[str], None]) -> Iterator[None]:
    """Run a server on the database in `home`, and point Prefect at it within this block.

    No other user of this machine can use it: the login is generated for every run and never written down. If the server
    exits before the block does, `ended` is called with the error message and ends this process.

    Raises InputError: it does not start.
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

    Raises InputError: it exits at once, or does not answer in time; its database cannot be written.
    """
    open_database(home)
    # A run reads no block of Prefect; registering their types takes 2 s of CPU. The server of `trajpilot ui` does it.
    environment = server_environment(home, login) | {"PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false"}
    for _ in range(TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])  # not in use
        with (home / LOG).open("wb") as log:
            server = launch([*SERVER, "--no-ui", "--port", str(port)], environment, log)
        url, started, limit_s = f"http://127.0.0.1:{port}/api", False, time.monotonic() + STARTUP_TIMEOUT_S
        try:
            while not started and server.poll() is None and time.monotonic() < limit_s:
                time.sleep(LOOK_EVERY_S)
                started = request(f"{url}/health", None)[0] == HTTPStatus.OK
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

    Raises InputError: it cannot be written, as when another user made it.
    """
    path = home / DATABASE
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o666))
    except PermissionError as error:
        raise InputError(
            f"{path} cannot be written. Two users who share a root need a common group, umask 002, and once "
            "`chmod -R g+w` on what is there; or choose another --root, or set PREFECT_API_URL to a server of your own"
        ) from error
