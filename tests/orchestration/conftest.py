"""Prefect for tests: its settings before its first import, and the servers of a process."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from checkout import CHECKOUT
from once import EmptyDatabase, Shelf, Worlds

if TYPE_CHECKING:
    from compose_server import Served
    from fake_server import Fake
    from whole_run import Ran

os.environ["PREFECT_HOME"] = tempfile.mkdtemp(prefix="trajpilot-prefect-")
os.environ.update(
    {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_PLUGINS_ENABLED": "0",
        "DO_NOT_TRACK": "1",
    }
)
os.environ.pop("PREFECT_API_URL", None)


RUNNING: dict[str, tuple[Any, Iterator[Any]]] = {}
"""Name of a server -> what its tests are given, and what ends it."""


def running(name: str, start: Callable[[], Iterator[Any]]) -> Any:
    """Return a server of this process; the first file of tests that needs it starts it."""
    if name not in RUNNING:
        server = start()
        RUNNING[name] = (next(server), server)
    return RUNNING[name][0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the servers when this process goes on to other folders: an idle one takes a fiftieth of a core."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        while RUNNING:
            next(RUNNING.popitem()[1][1], None)


@pytest.fixture(scope="module")
def prefect_server(empty_database: EmptyDatabase) -> str:
    def embedded() -> Iterator[str]:
        from prefect.server.api.server import SubprocessASGIServer

        empty_database.copy(Path(os.environ["PREFECT_HOME"]))
        server = SubprocessASGIServer()
        server.start(timeout=120)
        yield server.api_url
        server.stop()

    return str(running("embedded", embedded))


@pytest.fixture(scope="module")
def served(empty_database: EmptyDatabase, tmp_path_factory: pytest.TempPathFactory) -> "Served":
    from compose_server import Served, server_of_compose

    started = running("compose", lambda: server_of_compose(empty_database.copy(tmp_path_factory.mktemp("server"))))
    assert isinstance(started, Served)
    return started


@pytest.fixture
def fake() -> Iterator["type[Fake]"]:
    """A stand-in for a server, which answers at once."""
    from fake_server import serving

    yield from serving()


@pytest.fixture(scope="session")
def ran(shelf: Shelf, worlds: Worlds, empty_database: EmptyDatabase) -> "Ran":
    """A run of the whole pipeline by the command, with hostile texts and secrets."""
    from whole_run import whole_run

    return whole_run(shelf, worlds, empty_database)


@pytest.fixture
def checkout() -> Path:
    return CHECKOUT
