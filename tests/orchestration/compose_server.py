"""The service `server` of docker-compose.yml as a process: its command and environment, with SQLite as database."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any, NamedTuple

from stack_processes import PATIENCE, as_started, end, free_port, wait_for

LOGIN = "admin:c4nary-login-5d1e"
GIVEN = {"TRAJPILOT_LOGIN": LOGIN, "TRAJPILOT_DATABASE_PASSWORD": "none", "TRAJPILOT_DATA_FOLDER": "/srv/data"}


class Served(NamedTuple):
    url: str
    folder: Path


def server_of_compose(folder: Path) -> Iterator[Served]:
    service = as_started(GIVEN)["services"]["server"]
    port = free_port()
    declared: dict[str, str] = service["environment"]
    environment = {k: v for k, v in declared.items() if not k.startswith("PREFECT_SERVER_DATABASE_")}
    replaced = {"0.0.0.0": "127.0.0.1", "4200": str(port)}
    command = [sys.executable, "-m", *(replaced.get(word, word) for word in service["command"])]
    kept = {"PATH": os.environ["PATH"], "HOME": str(folder), "PREFECT_HOME": str(folder)}
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env={**kept, **environment}, stdout=log, stderr=log, process_group=0)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: ask(url, "GET", "/api/health").status == 200 or process.poll() is not None, 180 * PATIENCE)
        assert process.poll() is None, (folder / "server.log").read_text()
        yield Served(url, folder)
    finally:
        end(process, signal.SIGKILL)  # nothing of it is kept; asked kindly, it waits for its open connections


class Answer(NamedTuple):
    status: int
    body: bytes


def ask(url: str, method: str, path: str, login: str | None = None, body: object = None) -> Answer:
    """Ask the server; where it is too busy (503: its database is locked) ask again."""
    for _ in range(40):
        answer = ask_once(url, method, path, login, body)
        if answer.status != 503:
            break
        time.sleep(0.5)
    return answer


def told(url: str, path: str, body: object = None, login: str = LOGIN, method: str = "") -> Any:
    """Return what the server answers who has the login; a body makes it a POST."""
    answer = ask(url, method or ("GET" if body is None else "POST"), f"/api{path}", login, body)
    assert answer.status < 300, answer
    return json.loads(answer.body or b"null")


def ask_once(url: str, method: str, path: str, login: str | None, body: object) -> Answer:
    headers = {"Content-Type": "application/json"}
    if login is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(asked, timeout=60 * PATIENCE) as answer:
            return Answer(answer.status, answer.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, error.read())
    except (OSError, HTTPException):
        return Answer(0, b"")
