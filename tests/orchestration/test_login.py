"""Nobody reaches the server without the login: every route, every WebSocket, the paths of earlier holes, the UI.

The server is the one of docker-compose.yml (its command and environment), with SQLite in place of PostgreSQL.
"""

import json
import re
from itertools import product
from pathlib import Path

import pytest
from compose_server import LOGIN, Served, ask, told
from stack_processes import PATIENCE, wait_for
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Subprotocol
from whole_run import typed

WRONG = (None, "admin:wrong", "admin:", ":", LOGIN.upper(), LOGIN + " ", "c4nary-login-5d1e")
OPEN = {("GET", "/api/health"), ("GET", "/api/ready")}
"""What answers anybody: whether the server lives, for health checks. They tell nothing else."""
CLOSED = (
    "GET /api/variables/name/system-health",
    "GET /api/variables/name/health",
    "GET /api/variables/name/ready",
    "GET /api/deployments/name/any/ready",
    "DELETE /api/variables/name/x-ready",
    "GET /api/blocks/block_types/slug/health",
    "POST /api/health",
    "DELETE /api/ready",
    "GET /api/flows/..%2Fhealth",
    "POST /api/flows/filter?x=/health",
    "POST /api/flows/filter?/ready",
    "POST /api/flows/filter;/health",
)
SOCKETS = ("/api/events/in", "/api/events/out", "/api/logs/out", "/api/task_runs/subscriptions/scheduled")
EVENT = {
    "event": "test.intruder",
    "id": "0190b6a2-0000-7000-8000-000000000001",
    "occurred": "2026-11-21T00:00:00Z",
    "resource": {"prefect.resource.id": "test.intruder"},
}
LIMIT_S = 60 * PATIENCE
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def routes(served: Served) -> list[tuple[str, str]]:
    """Every route of the API, as the server describes it, ids and names filled in."""
    paths = told(served.url, "/openapi.json")["paths"]
    return sorted(
        (method.upper(), "/api" + re.sub(r"\{[^}]*\}", "x-ready", path).removeprefix("/api"))
        for path, methods in paths.items()
        for method in methods
    )


def test_every_route_of_the_api_answers_401_without_the_login(served: Served) -> None:
    answers = {(method, path): ask(served.url, method, path) for method, path in routes(served)}
    assert len(answers) > 150
    assert {route for route, answer in answers.items() if answer.status != 401} == OPEN
    assert {answers[route].body for route in OPEN} <= {b"true", b'{"message":"OK"}'}


def test_a_wrong_login_is_refused_and_the_right_one_is_not_and_the_ui_says_that_one_is_needed(served: Served) -> None:
    answers = {login: ask(served.url, "POST", "/api/flows/filter", login, {}).status for login in (*WRONG, LOGIN)}
    assert answers == {**dict.fromkeys(WRONG, 401), LOGIN: 200}
    said = json.loads(ask(served.url, "GET", "/ui-settings").body)
    assert (said["auth"], LOGIN in str(said)) == ("BASIC", False)


def test_a_path_that_ends_in_health_or_ready_asks_for_the_login_too(served: Served) -> None:
    """CVE-2026-7722 and CVE-2026-3514 let such paths through."""
    bodies: dict[str, object] = {"POST": {}}
    answers = {line: ask(served.url, *line.split(), None, bodies.get(line.split()[0])).status for line in CLOSED}
    assert answers == dict.fromkeys(CLOSED, 401)
    for path in ("//api/health", "/api//health", "/api/health/", "/api/health/../flows/count", "/API/health"):
        answer = ask(served.url, "GET", path)
        is_closed = answer.status in (401, 404, 405) or b"<!DOCTYPE html>" in answer.body
        assert is_closed or answer.body in (b"true", b""), path


def test_a_websocket_is_closed_before_it_takes_or_tells_anything_and_the_right_token_opens_it(served: Served) -> None:
    """CVE-2026-7723 let /api/events/in take events from anybody."""
    sockets = served.url.replace("http", "ws")
    for path, token in product(SOCKETS, (None, "wrong", LOGIN.partition(":")[2])):
        first = EVENT if token is None else {"type": "auth", "token": token}
        for protocols in ([Subprotocol("prefect")], None):
            with pytest.raises((ConnectionClosed, InvalidStatus)):
                talk(sockets + path, protocols, first)
    welcome = {**EVENT, "event": "test.welcome", "id": "0190b6a2-0000-7000-8000-000000000002"}
    with connect(f"{sockets}/api/events/in", subprotocols=[Subprotocol("prefect")], open_timeout=LIMIT_S) as socket:
        socket.send(json.dumps({"type": "auth", "token": LOGIN}))
        assert json.loads(socket.recv(timeout=LIMIT_S))["type"] == "auth_success"
        socket.send(json.dumps(welcome))
    wait_for(lambda: events_of(served.url, "test.welcome") == 1)
    assert events_of(served.url) == 0


def talk(address: str, protocols: list[Subprotocol] | None, first: object) -> None:
    with connect(address, subprotocols=protocols, open_timeout=LIMIT_S) as socket:
        socket.send(json.dumps(first))
        socket.send(json.dumps(EVENT))
        assert json.loads(socket.recv(timeout=LIMIT_S)).get("type") != "auth_success"
        socket.recv(timeout=LIMIT_S)


def events_of(url: str, name: str = "test.intruder") -> int:
    wanted = {"filter": {"event": {"name": [name]}}}
    return int(json.loads(ask(url, "POST", "/api/events/filter", LOGIN, wanted).body)["total"])


def test_a_command_with_a_wrong_login_says_so_in_one_message(served: Served, tmp_path: Path) -> None:
    places = ("--data", str(tmp_path), "--root", str(tmp_path / "root"))
    for command, login, why in (
        ("deploy", "", "it needs a login, and none is set"),
        ("deploy", "admin:wrong", "it rejects this login"),
        ("run", "admin:wrong", "it rejects this login"),
        ("doctor", "admin:wrong", "it rejects this login"),
    ):
        set_ = {"PREFECT_API_URL": f"{served.url}/api", "PREFECT_API_AUTH_STRING": login}
        status, said = typed(command, *places, **set_)
        assert status == (1 if command == "doctor" else 2), said
        assert "admin:wrong" not in said
        how = "set PREFECT_API_AUTH_STRING to its PREFECT_SERVER_API"
        assert [words for words in (why, how) if words not in said] == [], said
