"""doctor, server and login: told apart over HTTP, and no password is ever shown."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata

import pytest

from deployments.server_check import check_server

LOGIN = "admin:canary-7f3a"


class Fake(BaseHTTPRequestHandler):
    """As much of a Prefect server as the check asks for."""

    login: str | None = LOGIN
    version = metadata.version("prefect")
    workers: dict[str, list[str]] = {"trajpilot-cpu": ["ONLINE", "OFFLINE"], "trajpilot-gpu": []}  # noqa: RUF012
    moved_to = ""
    deployments: list[str] = ["full-pipeline", "ingest"]  # noqa: RUF012

    def do_GET(self) -> None:
        if self.moved_to:
            self.send_response(302)
            self.send_header("Location", self.moved_to)
            self.end_headers()
            return
        self.answer(True if self.path == "/api/health" else self.version, is_open=self.path == "/api/health")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/deployments/filter":
            self.answer([{"name": name} for name in self.deployments])
            return
        pool = self.path.split("/")[3]
        if pool in self.workers:
            self.answer([{"status": status} for status in self.workers[pool]])
        else:
            self.send_error(404)

    def answer(self, body: object, *, is_open: bool = False) -> None:
        wanted = None if self.login is None else f"Basic {base64.b64encode(self.login.encode()).decode()}"
        if not is_open and wanted is not None and self.headers.get("Authorization") != wanted:
            self.send_error(401)
            return
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def fake() -> Iterator[tuple[type[Fake], str]]:
    kind = type("OneFake", (Fake,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield kind, f"http://127.0.0.1:{server.server_port}/api"
    server.shutdown()
    server.server_close()
    thread.join()


def verdicts(url: str | None, login: str | None = LOGIN, has_key: bool = False) -> dict[str, str]:
    found = check_server(url, login, has_key=has_key)
    assert "canary" not in str(found)
    return {row.what: row.verdict for row in found}


def test_a_server_with_login_pool_and_worker_is_ok_and_a_pool_without_worker_is_noted(fake) -> None:
    _, url = fake
    assert verdicts(url) == {
        "login": "ok",
        "server": "ok",
        "pool trajpilot-cpu": "ok",
        "pool trajpilot-gpu": "note",
        "deployments": "ok",
    }


def test_a_wrong_or_missing_login_and_a_key_that_overrides_it_are_bad_and_a_server_without_login_is_noted(fake) -> None:
    kind, url = fake
    assert [verdicts(url, login) for login in (None, "admin:canary-wrong")] == [{"login": "bad"}] * 2
    assert verdicts(url, has_key=True)["login"] == "bad"
    kind.login = None
    assert verdicts(url)["login"] == "note"


def test_another_version_no_pools_and_no_deployments_are_noted(fake) -> None:
    kind, url = fake
    kind.version, kind.workers, kind.deployments = "3.0.0", {}, []
    assert verdicts(url) == {
        "login": "ok",
        "server": "note",
        "pool trajpilot-cpu": "note",
        "pool trajpilot-gpu": "note",
        "deployments": "note",
    }


def test_a_server_that_does_not_answer_and_an_address_that_is_none_are_bad_and_none_is_needed() -> None:
    assert verdicts(None) == {"server": "ok"}
    assert verdicts("http://127.0.0.1:9/api") == {"server": "bad"}
    assert verdicts("file:///etc/passwd") == {"server": "bad"}


def test_a_server_that_sends_the_login_elsewhere_is_not_followed(fake) -> None:
    kind, url = fake
    kind.moved_to = url.replace("/api", "/elsewhere")
    (found,) = check_server(url, LOGIN, has_key=False)
    assert (found.verdict, found.found) == ("bad", "HTTP 302")
