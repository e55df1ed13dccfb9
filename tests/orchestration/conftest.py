"""Prefect for tests: its settings before its first import, and the server of a process."""

import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
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


RUNNING: list[tuple["Served", Iterator["Served"]]] = []
"""The server of this process, and what ends it."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the server when this process goes on to other folders: an idle one takes a fiftieth of a core."""
    if nextitem is None or nextitem.path.parent != item.path.parent:
        while RUNNING:
            next(RUNNING.pop()[1], None)


@pytest.fixture(scope="module")
def served(empty_database: EmptyDatabase, tmp_path_factory: pytest.TempPathFactory) -> "Served":
    """The server of this process; the first file of tests that needs it starts it."""
    from compose_server import server_of_compose

    if not RUNNING:
        server = server_of_compose(empty_database.copy(tmp_path_factory.mktemp("server")))
        RUNNING.append((next(server), server))
    return RUNNING[0][0]


@pytest.fixture(scope="module")
def prefect_server(served: "Served") -> Iterator[str]:
    """The address of its API, which flows of this process and of those that it starts report to."""
    from compose_server import LOGIN
    from prefect.context import refresh_global_settings_context

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_API_URL", f"{served.url}/api")
        patch.setenv("PREFECT_API_AUTH_STRING", LOGIN)
        refresh_global_settings_context()
        yield f"{served.url}/api"
    refresh_global_settings_context()


@pytest.fixture
def fake() -> Iterator["type[Fake]"]:
    from fake_server import serving

    yield from serving()


@pytest.fixture(scope="session")
def ran(shelf: Shelf, worlds: Worlds, empty_database: EmptyDatabase) -> "Ran":
    """A run of the whole pipeline by the command, with hostile texts and secrets."""
    from whole_run import whole_run

    return whole_run(shelf, worlds, empty_database)
