"""The Prefect server that a run starts for itself, on 127.0.0.1 behind its own login, and checks of any server.

Neither server nor run outlives the other. A server is checked for an answer, this login, and what a run needs.
"""

import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from prefect.events.worker import EventsWorker
from prefect.logging.handlers import APILogWorker
from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

from deployments.settings import POOLS, STARTUP_TIMEOUT_S, WHOLE, server_environment
from deployments.tethered import SERVER, launch, stop
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.errors import InputError, command
from trajpilot_core.incoming import parse_json

TIMEOUT_S = 15.0
"""A busy server on a small machine can need seconds to answer."""
TRIES = 3
"""Another process may take a free port before the server binds it."""
LOOK_EVERY_S = 0.2
DRAIN_S = 10.0
LOG, DATABASE = "server.log", "prefect.db"
WITHOUT_BLOCKS = {"PREFECT_SERVER_REGISTER_BLOCKS_ON_START": "false"}
"""A run reads no block of Prefect; registering their types takes 2 s of CPU. The server of `trajpilot ui` does it."""


class Answer(NamedTuple):
    """Answer of the server."""

    status: int
    """HTTP status; 0 if there was no answer."""
    body: Any
    """Parsed JSON, or the reason why there was no answer."""


def check_server(url: str | None, login: str | None) -> list[HealthFinding]:
    """Check the server, the login, the pools with their workers, and the deployments.

    Args:
        url: API address; None if a run starts a server for itself.
        login: `Authorization` header, from `server_login`.
    """
    if url is None:
        return [HealthFinding("server", "none needed", "a run starts its own", "ok")]
    health = request(f"{url}/health", None)
    if health.status != 200:
        problem = health.body if health.status == 0 else f"HTTP {health.status}"
        todo = "start it, or correct PREFECT_API_URL"
        return [HealthFinding("server", f"an answer from {url}", str(problem), "bad", todo)]
    deployed = request(f"{url}/deployments/filter", login, {})
    finding = _login(url, deployed, login)
    if deployed.status != 200:
        return [finding]
    version = request(f"{url}/admin/version", login)  # Prefect Cloud has none
    known = version.body if version.status == 200 else None
    expected, actual = f"Prefect {metadata.version('prefect')}", f"{known or 'no version'} at {url}"
    server = HealthFinding("server", expected, actual, "ok")
    if known not in (None, metadata.version("prefect")):
        server = HealthFinding("server", expected, actual, "note", "use one version on both sides")
    findings = [finding, server]
    for pool in POOLS:
        answer = request(f"{url}/work_pools/{pool}/workers/filter", login, {})
        online = sum(worker.get("status") == "ONLINE" for worker in _rows(answer))
        state = f"{online} workers online" if answer.status == 200 else f"HTTP {answer.status}"
        todo = "" if online else command("worker", "start", "--pool", pool, program="prefect")
        if answer.status == 404:
            state, todo = "absent", command("deploy")
        what, expected = f"pool {pool}", "exists, with a worker"
        findings.append(HealthFinding(what, expected, state, "note" if todo else "ok", todo))
    names = {row.get("name") for row in _rows(deployed)}
    state, todo = f"{len(names)} deployments", ""
    if WHOLE not in names:
        state, todo = f"{state}, none of that name", command("deploy")
    return [*findings, HealthFinding("deployments", WHOLE, state, "note" if todo else "ok", todo)]


def require_server(url: str | None, login: str | None) -> str:
    """Require a server of the user's own that answers and accepts the login; return its address.

    Raises:
        InputError: there is none, or it does not; the message states what to do and never repeats the login.
    """
    if url is None:
        raise InputError(
            "PREFECT_API_URL is not set, so there is no server; start one with `prefect server start` and set "
            "PREFECT_API_URL=http://127.0.0.1:4200/api (docs/operations.md, Start)"
        )
    bad = next((row for row in check_server(url, login) if row.verdict == "bad"), None)
    if bad is not None:
        raise InputError(f"the Prefect server at {url}: {bad.what}: {bad.found}, expected {bad.expected}; {bad.todo}")
    return url


def _login(url: str, answer: Answer, login: str | None) -> HealthFinding:
    """Check the login; the password itself is never shown."""
    if answer.status in (401, 403):
        problem = "it rejects this login" if login else "it needs one, and none is set"
        todo = "set PREFECT_API_AUTH_STRING to its PREFECT_SERVER_API_AUTH_STRING; for Prefect Cloud PREFECT_API_KEY"
        return HealthFinding("login", "accepted", problem, "bad", todo)
    if answer.status != 200:
        return HealthFinding("login", "accepted", f"HTTP {answer.status}", "bad", "see the log of the server")
    if request(f"{url}/deployments/filter", None, {}).status == 200:
        todo = "set PREFECT_SERVER_API_AUTH_STRING if others can reach it"
        return HealthFinding("login", "required", "not required", "note", todo)
    return HealthFinding("login", "required", "accepted", "ok")


def _rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the objects of a list that the server sent."""
    rows = answer.body if answer.status == 200 and isinstance(answer.body, list) else []
    return [row for row in rows if isinstance(row, dict)]


def request(url: str, login: str | None, body: dict[str, Any] | None = None) -> Answer:
    """Send a request, a POST if it has a body. Redirects are not followed: the login would be sent along."""
    headers = {} if login is None else {"Authorization": login}
    try:
        answer = httpx.request("GET" if body is None else "POST", url, json=body, headers=headers, timeout=TIMEOUT_S)
        return Answer(answer.status_code, parse_json(answer.content or b"null", url) if answer.is_success else None)
    except (httpx.HTTPError, httpx.InvalidURL, InputError) as error:
        return Answer(0, f"no answer ({error})")


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
    environment = {**server_environment(home, login), **WITHOUT_BLOCKS}
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
                started = request(f"{url}/health", None).status == 200
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
