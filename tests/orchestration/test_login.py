"""Nobody reaches the server without the login: every route, every WebSocket, the paths of earlier holes, the UI.

The server is the one of docker-compose.yml (its command and environment), with SQLite in place of PostgreSQL.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from compose_server import LOGIN, Served, ask, server_of_compose
from once import EmptyDatabase
from stack_processes import PATIENCE
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol

WRONG = (None, "admin:wrong", "admin:", ":", LOGIN.upper(), LOGIN + " ", "c4nary-login-5d1e")
OPEN = {("GET", "/api/health"), ("GET", "/api/ready")}
"""What answers anybody: whether the server lives, for health checks. They tell nothing else."""
SOCKETS = (
    "/api/events/in",
    "/api/events/out",
    "/api/logs/out",
    "/api/task_runs/subscriptions/scheduled",
    "/api/work_pools/x/workers/connect",
)
EVENT = {
    "event": "test.intruder",
    "id": "0190b6a2-0000-7000-8000-000000000001",
    "occurred": "2026-11-21T00:00:00Z",
    "resource": {"prefect.resource.id": "test.intruder"},
}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def routes() -> list[tuple[str, str]]:
    """Every route of the API of the installed Prefect, ids and names filled in."""
    from prefect.server.api.server import create_api_app

    paths = create_api_app().openapi()["paths"]
    return sorted(
        (method.upper(), "/api" + re.sub(r"\{[^}]*\}", "x-ready", path).removeprefix("/api"))
        for path, methods in paths.items()
        for method in methods
    )


def test_every_route_of_the_api_answers_401_without_the_login(served: Served) -> None:
    answers = {(method, path): ask(served.url, method, path) for method, path in routes()}
    assert len(answers) > 150
    assert {route for route, answer in answers.items() if answer.status != 401} == OPEN
    assert {answers[route].body for route in OPEN} <= {b"true", b'{"message":"OK"}'}


@pytest.mark.parametrize("login", WRONG)
def test_a_wrong_login_is_refused_and_the_right_one_is_not(served: Served, login: str | None) -> None:
    assert ask(served.url, "POST", "/api/flows/filter", login, {}).status == 401
    assert ask(served.url, "POST", "/api/flows/filter", LOGIN, {}).status == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/variables/name/system-health"),
        ("GET", "/api/variables/name/health"),
        ("GET", "/api/variables/name/ready"),
        ("GET", "/api/deployments/name/any/ready"),
        ("DELETE", "/api/variables/name/x-ready"),
        ("GET", "/api/blocks/block_types/slug/health"),
        ("POST", "/api/health"),
        ("DELETE", "/api/ready"),
        ("GET", "/api/flows/..%2Fhealth"),
        ("POST", "/api/flows/filter?x=/health"),
        ("POST", "/api/flows/filter?/ready"),
        ("POST", "/api/flows/filter;/health"),
    ],
)
def test_a_path_that_ends_in_health_or_ready_asks_for_the_login_too(served: Served, method: str, path: str) -> None:
    """CVE-2026-7722 and CVE-2026-3514 let such paths through."""
    assert ask(served.url, method, path, None, {} if method == "POST" else None).status == 401


@pytest.mark.parametrize(
    "path", ["//api/health", "/api//health", "/api/health/", "/api/health/../flows/count", "/API/health"]
)
def test_a_path_written_otherwise_shows_nothing(served: Served, path: str) -> None:
    answer = ask(served.url, "GET", path)
    assert answer.status in (401, 404, 405) or b"<!DOCTYPE html>" in answer.body or answer.body in (b"true", b"")


@pytest.mark.parametrize("token", [None, "wrong", LOGIN.partition(":")[2]])
@pytest.mark.parametrize(
    "path", ["/api/events/in", "/api/events/out", "/api/logs/out", "/api/task_runs/subscriptions/scheduled"]
)
def test_a_websocket_is_closed_before_it_takes_or_tells_anything(served: Served, path: str, token: str | None) -> None:
    """CVE-2026-7723 let /api/events/in take events from anybody."""
    address = served.url.replace("http", "ws") + path
    first = EVENT if token is None else {"type": "auth", "token": token}
    for protocols in ([Subprotocol("prefect")], None):
        with pytest.raises((ConnectionClosed, InvalidStatus)):
            talk(address, protocols, first)
    assert intruders(served) == 0


def talk(address: str, protocols: list[Subprotocol] | None, first: object) -> None:
    """Say two things on a WebSocket and listen twice."""
    with connect(address, subprotocols=protocols, open_timeout=60 * PATIENCE) as socket:
        socket.send(json.dumps(first))
        socket.send(json.dumps(EVENT))
        assert json.loads(socket.recv(timeout=60 * PATIENCE)).get("type") != "auth_success"
        socket.recv(timeout=60 * PATIENCE)


def intruders(served: Served) -> int:
    """How many events of the intruder the server has."""
    wanted = {"filter": {"event": {"name": ["test.intruder"]}}}
    return int(json.loads(ask(served.url, "POST", "/api/events/filter", LOGIN, wanted).body)["total"])


def test_the_right_token_opens_the_websocket_and_its_event_arrives(served: Served) -> None:
    address = served.url.replace("http", "ws") + "/api/events/in"
    welcome = {**EVENT, "event": "test.welcome", "id": "0190b6a2-0000-7000-8000-000000000002"}
    with connect(address, subprotocols=[Subprotocol("prefect")], open_timeout=60 * PATIENCE) as socket:
        socket.send(json.dumps({"type": "auth", "token": LOGIN}))
        assert json.loads(socket.recv(timeout=60 * PATIENCE))["type"] == "auth_success"
        socket.send(json.dumps(welcome))
    limit = time.monotonic() + 60 * PATIENCE
    wanted = {"filter": {"event": {"name": ["test.welcome"]}}}
    while json.loads(ask(served.url, "POST", "/api/events/filter", LOGIN, wanted).body)["total"] != 1:
        assert time.monotonic() < limit, "the event of the right token did not arrive"
        time.sleep(1.0)


def test_the_page_of_the_ui_says_that_a_login_is_needed(served: Served) -> None:
    told = json.loads(ask(served.url, "GET", "/ui-settings").body)
    assert told["auth"] == "BASIC"
    assert LOGIN not in str(told)


@pytest.mark.parametrize(
    ("command", "login"),
    [
        (("deploy", "--data", "/srv"), None),
        (("deploy", "--data", "/srv"), "admin:wrong"),
        (("run", "--data", "/srv", "--root", "r"), "admin:wrong"),
        (("doctor",), "admin:wrong"),
    ],
)
def test_a_command_with_a_wrong_login_says_so_in_one_message(
    served: Served, tmp_path: Path, command: tuple[str, ...], login: str | None
) -> None:
    (tmp_path / "srv").mkdir()
    arguments = [str(tmp_path / "srv") if word == "/srv" else word for word in command]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PREFECT_API_URL": f"{served.url}/api"}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    environment |= {} if login is None else {"PREFECT_API_AUTH_STRING": login}
    program = str(Path(sys.executable).parent / "trajpilot")
    done = subprocess.run(
        [program, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    said = " ".join((done.stdout + done.stderr).replace("│", " ").split())
    assert done.returncode in (1, 2)
    assert "Traceback" not in said
    assert "admin:wrong" not in said
    if command[0] != "doctor":
        assert ("it wants one, none is set" if login is None else "it refuses this login") in said
        assert "set PREFECT_API_AUTH_STRING to the server's PREFECT_SERVER_API_AUTH_STRING" in said


def test_without_the_login_of_the_compose_file_the_same_questions_are_answered(
    tmp_path: Path, empty_database: EmptyDatabase
) -> None:
    """The planted fault: these tests see a server that asks for nothing."""
    for open_one in server_of_compose(empty_database.copy(tmp_path), PREFECT_SERVER_API_AUTH_STRING=None):
        assert ask(open_one.url, "POST", "/api/flows/filter", None, {}).status == 200
        address = open_one.url.replace("http", "ws") + "/api/events/in"
        with connect(address, open_timeout=60 * PATIENCE) as socket:
            socket.send(json.dumps(EVENT))
        limit = time.monotonic() + 60 * PATIENCE
        while intruders(open_one) != 1:
            assert time.monotonic() < limit, "an open server takes the event"
            time.sleep(1.0)
