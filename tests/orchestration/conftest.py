"""Prefect for tests: its settings before its first import, one embedded server per session."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

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


@pytest.fixture(scope="session")
def prefect_server(empty_database: EmptyDatabase) -> Iterator[str]:
    """One embedded Prefect server, ended by its process id."""
    from prefect.server.api.server import SubprocessASGIServer

    empty_database.copy(Path(os.environ["PREFECT_HOME"]))
    server = SubprocessASGIServer()
    server.start(timeout=120)
    yield server.api_url
    server.stop()


@pytest.fixture(scope="session")
def served(empty_database: EmptyDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator["Served"]:
    """The server of docker-compose.yml, which asks for a login."""
    from compose_server import server_of_compose

    yield from server_of_compose(empty_database.copy(tmp_path_factory.mktemp("server")))


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
    """Root of the checkout."""
    return CHECKOUT
