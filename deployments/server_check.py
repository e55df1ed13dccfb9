"""Checks of a Prefect server: that it answers, accepts this login, and has what a run needs.

Made over HTTP: Prefect itself takes seconds to load and hides why a login fails.
"""

import base64
from importlib import metadata
from typing import Any, NamedTuple

import httpx

from deployments.settings import POOLS
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.errors import InputError, command
from trajpilot_core.incoming import parse_json

TIMEOUT_S = 15.0
"""A busy server on a small machine can need seconds to answer."""


class Answer(NamedTuple):
    """Answer of the server."""

    status: int
    """HTTP status; 0 if there was no answer."""
    body: Any
    """Parsed JSON, or the reason why there was no answer."""


def check_server(url: str | None, login: str | None, *, has_key: bool) -> list[HealthFinding]:
    """Check the server, the login, the pools with their workers, and the deployments.

    Args:
        url: API address; None if a run starts a server for itself.
        login: `user:password`.
        has_key: an API key of Prefect Cloud is set, too.
    """
    if url is None:
        return [HealthFinding("server", "none needed", "a run starts its own", "ok")]
    health = request(f"{url}/health", None)
    if health.status != 200:
        problem = health.body if health.status == 0 else f"HTTP {health.status}"
        todo = "start it, or correct PREFECT_API_URL"
        return [HealthFinding("server", f"an answer from {url}", str(problem), "bad", todo)]
    version = request(f"{url}/admin/version", login)
    finding = _login(url, version, login, has_key=has_key)
    if version.status != 200:
        return [finding]
    expected, there = f"Prefect {metadata.version('prefect')}", f"{version.body} at {url}"
    server = HealthFinding("server", expected, there, "ok")
    if version.body != metadata.version("prefect"):
        server = HealthFinding("server", expected, there, "note", "use one version on both sides")
    return [finding, server, *(_pool(url, login, pool) for pool in POOLS), _deployments(url, login)]


def require_server(url: str, login: str | None, *, has_key: bool) -> None:
    """Require that the server answers and accepts the login.

    Raises:
        InputError: it does not; the message states what to do and never repeats the login.
    """
    bad = next((row for row in check_server(url, login, has_key=has_key) if row.verdict == "bad"), None)
    if bad is not None:
        raise InputError(f"the Prefect server at {url}: {bad.what}: {bad.found}, expected {bad.expected}; {bad.todo}")


def _login(url: str, answer: Answer, login: str | None, *, has_key: bool) -> HealthFinding:
    """Check the login; the password itself is never shown."""
    if answer.status == 401:
        found = "it rejects this login" if login else "it needs one, and none is set"
        todo = "set PREFECT_API_AUTH_STRING to the server's PREFECT_SERVER_API_AUTH_STRING"
        return HealthFinding("login", "accepted", found, "bad", todo)
    if answer.status != 200:
        return HealthFinding("login", "accepted", f"HTTP {answer.status}", "bad", "see the log of the server")
    if has_key and login:
        return HealthFinding("login", "one", "PREFECT_API_KEY is set, too, and wins", "bad", "unset PREFECT_API_KEY")
    if request(f"{url}/admin/version", None).status == 200:
        todo = "set PREFECT_SERVER_API_AUTH_STRING if others can reach it"
        return HealthFinding("login", "required", "not required", "note", todo)
    return HealthFinding("login", "required", "accepted", "ok")


def _pool(url: str, login: str | None, pool: str) -> HealthFinding:
    """Check a work pool and its workers."""
    what, expected = f"pool {pool}", "exists, with a worker"
    answer = request(f"{url}/work_pools/{pool}/workers/filter", login, {})
    if answer.status == 404:
        return HealthFinding(what, expected, "absent", "note", command("deploy"))
    online = sum(worker.get("status") == "ONLINE" for worker in _rows(answer))
    found = f"{online} workers online" if answer.status == 200 else f"HTTP {answer.status}"
    if online:
        return HealthFinding(what, expected, found, "ok")
    return HealthFinding(what, expected, found, "note", command("worker", "start", "--pool", pool, program="prefect"))


def _deployments(url: str, login: str | None) -> HealthFinding:
    """Check the deployments."""
    names = {row.get("name") for row in _rows(request(f"{url}/deployments/filter", login, {}))}
    if "full-pipeline" in names:
        return HealthFinding("deployments", "full-pipeline", f"{len(names)} deployments", "ok")
    found = f"{len(names)} deployments, none of that name"
    return HealthFinding("deployments", "full-pipeline", found, "note", command("deploy"))


def _rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the objects of a list that the server sent."""
    rows = answer.body if answer.status == 200 and isinstance(answer.body, list) else []
    return [row for row in rows if isinstance(row, dict)]


def request(url: str, login: str | None, body: dict[str, Any] | None = None) -> Answer:
    """Send a request, a POST if it has a body. Redirects are not followed: the login would be sent along."""
    headers = {}
    if login is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    try:
        answer = httpx.request("GET" if body is None else "POST", url, json=body, headers=headers, timeout=TIMEOUT_S)
        return Answer(answer.status_code, parse_json(answer.content or b"null", url) if answer.is_success else None)
    except (httpx.HTTPError, httpx.InvalidURL, InputError) as error:
        return Answer(0, f"no answer ({error})")
