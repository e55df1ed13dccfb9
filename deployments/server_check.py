"""Whether the Prefect server that the environment names answers, knows this login, and has what a run needs.

Asked over HTTP with the standard library: Prefect itself takes seconds to load and hides why a login fails.
"""

import base64
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib import metadata
from typing import Any, NamedTuple

from deployments.settings import POOLS
from trajpilot_core.command_line import command
from trajpilot_core.doctor.checks import HealthFinding
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import parse_json

TIMEOUT_S = 15.0
"""A busy server on a small machine was seen to need seconds for an answer."""


class Answer(NamedTuple):
    """What the server said."""

    status: int
    """HTTP status; 0 where there was no answer."""
    body: Any
    """Parsed JSON, or the reason why there was no answer."""


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """Goes nowhere else: the login would go with it."""

    def redirect_request(self, *_: object) -> None:
        """Follow no redirect."""


def check_server(url: str | None, login: str | None, *, has_key: bool) -> list[HealthFinding]:
    """Look at the server, the login, the pools with their workers, and the deployments.

    Args:
        url: API address, None where a run starts a server for itself.
        login: `user:password`.
        has_key: an API key of Prefect Cloud is set, too.
    """
    if url is None:
        return [HealthFinding("server", "none is needed", "a run starts one for itself", "ok")]
    health = request(f"{url}/health", None)
    if health.status != 200:
        said = health.body if health.status == 0 else f"HTTP {health.status}"
        return [
            HealthFinding("server", f"an answer of {url}", str(said), "bad", "start it, or correct PREFECT_API_URL")
        ]
    version = request(f"{url}/admin/version", login)
    found = [_login(url, version, login, has_key=has_key)]
    if version.status != 200:
        return found
    installed = metadata.version("prefect")
    same = version.body == installed
    todo = "" if same else "use one version on both sides"
    found.append(
        HealthFinding("server", f"Prefect {installed}", f"{version.body} at {url}", "ok" if same else "note", todo)
    )
    return [*found, *(_pool(url, login, pool) for pool in POOLS), _deployments(url, login)]


def require_server(url: str, login: str | None, *, has_key: bool) -> None:
    """Do nothing where the server answers and accepts the login.

    Raises:
        InputError: it does not; the message states what to do, and never repeats the login.
    """
    bad = next((row for row in check_server(url, login, has_key=has_key) if row.verdict == "bad"), None)
    if bad is not None:
        raise InputError(f"the Prefect server at {url}: {bad.what}: {bad.found}, expected {bad.expected}; {bad.todo}")


def _login(url: str, answer: Answer, login: str | None, *, has_key: bool) -> HealthFinding:
    """Judge the login; the password itself is never shown."""
    if answer.status == 401:
        said = "it refuses this login" if login else "it wants one, none is set"
        todo = "set PREFECT_API_AUTH_STRING to the server's PREFECT_SERVER_API_AUTH_STRING"
        return HealthFinding("login", "accepted", said, "bad", todo)
    if answer.status != 200:
        return HealthFinding("login", "accepted", f"HTTP {answer.status}", "bad", "see the log of the server")
    if has_key and login:
        return HealthFinding("login", "one", "PREFECT_API_KEY is set, too, and wins", "bad", "unset PREFECT_API_KEY")
    is_open = request(f"{url}/admin/version", None).status == 200
    todo = "set PREFECT_SERVER_API_AUTH_STRING where others reach it" if is_open else ""
    return HealthFinding(
        "login", "required", "none is required" if is_open else "accepted", "note" if is_open else "ok", todo
    )


def _pool(url: str, login: str | None, pool: str) -> HealthFinding:
    expected = "there, with a worker"
    answer = request(f"{url}/work_pools/{pool}/workers/filter", login, {})
    if answer.status == 404:
        return HealthFinding(f"pool {pool}", expected, "absent", "note", command("deploy"))
    workers = [worker for worker in _rows(answer) if worker.get("status") == "ONLINE"]
    todo = "" if workers else command("worker", "start", "--pool", pool, program="prefect")
    found = f"{len(workers)} workers online" if answer.status == 200 else f"HTTP {answer.status}"
    return HealthFinding(f"pool {pool}", expected, found, "ok" if workers else "note", todo)


def _deployments(url: str, login: str | None) -> HealthFinding:
    names = {row.get("name") for row in _rows(request(f"{url}/deployments/filter", login, {}))}
    there = "full-pipeline" in names
    found = f"{len(names)} deployments" + ("" if there else ", none of that name")
    return HealthFinding(
        "deployments", "full-pipeline", found, "ok" if there else "note", "" if there else command("deploy")
    )


def _rows(answer: Answer) -> Sequence[dict[str, Any]]:
    rows = answer.body if answer.status == 200 and isinstance(answer.body, list) else []
    return [row for row in rows if isinstance(row, dict)]


def request(url: str, login: str | None, body: dict[str, Any] | None = None) -> Answer:
    """Ask the server; with a body it is a POST. Only http and https are used, and redirects are not followed."""
    if not url.startswith(("http://", "https://")):
        return Answer(0, f"{url} is no http address")
    headers = {"Content-Type": "application/json"}
    if login is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.build_opener(NoRedirect).open(asked, timeout=TIMEOUT_S) as answer:
            return Answer(answer.status, parse_json(answer.read() or b"null", url))
    except urllib.error.HTTPError as error:
        return Answer(error.code, None)
    except (OSError, ValueError, InputError) as error:
        return Answer(0, f"no answer ({error})")
