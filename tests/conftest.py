"""The order of the tests, and what all of them may share."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest
from one_state import one_state, pytest_fixture_setup  # noqa: F401  (found here by pytest)
from order import ByServer, place, shuffled

if TYPE_CHECKING:
    from once import EmptyDatabase, Shelf, Worlds

hypothesis.settings.register_profile("portable", derandomize=True, deadline=None, max_examples=60)
hypothesis.settings.load_profile("portable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files, and tests within a file, in a random order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first; `--no-loadscope-reorder` hands them to the processes in this order."""
    here = Path(__file__).parent
    seed: int | None = config.getoption("shuffle")
    if seed is None:
        items.sort(key=lambda item: place(item.path.relative_to(here).as_posix()))
        return
    items[:] = [items[n] for n in shuffled([str(item.path) for item in items], seed)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServer:
    return ByServer(config, log)


@pytest.fixture
def double() -> Iterator[None]:
    """Compute in float64 what code calls float32: originals and ours alike name it here and there.

    Both sides round at 1e-16 and agree to 1e-9 whatever the processor, if they compute the same formula.
    """
    import torch

    dtype = torch.get_default_dtype()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("float32", "float"):
            patch.setattr(torch, name, torch.float64)
        patch.setattr(torch.Tensor, "float", torch.Tensor.double)
        torch.set_default_dtype(torch.float64)
        yield
    torch.set_default_dtype(dtype)


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> "Shelf":
    from once import shelf_of

    return shelf_of(tmp_path_factory)


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
