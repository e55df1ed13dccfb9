"""The guard of `one_state`: tests that leave a mess behind, with it and without it, in two orders."""

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from checkout import CHECKOUT
from order import shuffled

FIXTURES = CHECKOUT / "tests" / "fixtures"
MESSY = """
import os, random
import numpy as np
import pytest

def numbers():
    import torch
    threads, precision = torch.get_num_threads(), torch.get_default_dtype()
    return random.random(), np.random.rand(), torch.rand(1).item(), threads, precision, os.environ.get("MESS")

@pytest.fixture(scope="module")
def shared():
    return numbers()

@pytest.mark.parametrize("test", range(3))
def test_messy(test, shared, request):
    import torch
    found = (numbers(), shared)
    assert found == FIRST.setdefault("found", found)
    os.environ["MESS"] = str(test)
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)

FIRST = {}
"""
ORDERED = "from one_state import one_state, pytest_fixture_setup"


ORDERS = (("test_a.py", "test_b.py"), ("test_b.py::test_told",))


def messy(folder: Path, conftest: str, orders: Sequence[Sequence[str]] = ORDERS) -> str:
    """Two files of messy tests, which must agree with each other and between processes: the last line, and numbers."""
    folder.mkdir()
    (folder / "conftest.py").write_text(conftest)
    note = folder / "numbers"
    told = MESSY + f"\ndef test_told():\n    open({str(note)!r}, 'a').write(f'{{numbers()[:3]}}\\n')\n"
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(told)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
        "-p",
        "no:cacheprovider",
    ]
    environment = {
        **os.environ,
        "PYTEST_ADDOPTS": "",
        "PYTHONPATH": str(FIXTURES),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    last = ""
    for order in orders:
        done = subprocess.run(
            [*command, *(str(folder / name) for name in order)], env=environment, capture_output=True, text=True
        )
        last += done.stdout.strip().rsplit("\n", 1)[-1] + "; "
    return f"{last}{len(set(note.read_text().splitlines()))} kinds of numbers"


def test_a_test_starts_from_the_same_state_whatever_ran_before(tmp_path: Path) -> None:
    """The test that is told alone imports torch itself."""
    told = messy(tmp_path / "with", ORDERED)
    assert "8 passed" in told
    assert "1 passed" in told
    assert told.endswith("; 1 kinds of numbers"), told


def test_without_it_the_mess_of_others_is_seen(tmp_path: Path) -> None:
    """The planted fault."""
    told = messy(tmp_path / "without", "", ORDERS[:1])
    assert "failed" in told
    assert not told.endswith("; 1 kinds of numbers"), told


def test_a_random_order_keeps_files_together_and_is_that_of_its_seed() -> None:
    files = [name for name in "abcd" for _ in range(5)]
    first, again, second = (shuffled(files, seed) for seed in (1, 1, 2))
    assert first == again
    assert len({tuple(order) for order in (range(20), first, second)}) == 3
    assert sorted(first) == sorted(second) == [*range(20)]
    assert sum(files[one] != files[other] for one, other in itertools.pairwise(first)) == 3
    assert first[:5] != sorted(first[:5])
