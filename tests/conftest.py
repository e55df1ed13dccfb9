"""The order of the tests, and what all of them may share."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from order import place

if TYPE_CHECKING:
    from once import EmptyDatabase, Shelf, Worlds


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; `--no-loadscope-reorder` hands them to the processes in this order."""
    here = Path(__file__).parent
    items.sort(key=lambda item: place(item.path.relative_to(here).as_posix()))


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> "Shelf":
    """A folder that all processes of a session of tests share."""
    from once import Shelf

    own = tmp_path_factory.getbasetemp()
    return Shelf((own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "once")


@pytest.fixture(scope="session")
def worlds(shelf: "Shelf") -> "Worlds":
    """Simulated worlds by configuration, each written once."""
    from once import Worlds

    return Worlds(shelf)


@pytest.fixture(scope="session")
def empty_database(shelf: "Shelf") -> "EmptyDatabase":
    """The database of a Prefect server that has seen no run, made once."""
    from once import EmptyDatabase

    return EmptyDatabase(shelf)
