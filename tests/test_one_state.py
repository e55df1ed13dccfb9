"""The guard of `one_state`: tests that leave a mess behind, with it and without it, in two orders."""

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from checkout import CHECKOUT
from one_state import reset
from order import shuffled

FIXTURES = CHECKOUT / "tests" / "fixtures"
MESSY = """
import os, random
import numpy as np
import pytest

def numbers():
    import torch
    threads, precision = torch.get_num_threads(), torch.get_default_dtype()
    return random.random(), np.random.rand(), float(torch.rand(1)), threads, precision, os.environ.get("MESS")

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
TORCH = """
import random

float32, float64 = "float32", "float64"
kept = {"threads": 8, "dtype": float32}
generator = random.Random()  # as torch does, it seeds itself from the operating system
manual_seed = generator.seed
get_num_threads, get_default_dtype = lambda: kept["threads"], lambda: kept["dtype"]
set_num_threads, set_default_dtype = (lambda value, name=name: kept.update({name: value}) for name in kept)
set_default_device = set_grad_enabled = use_deterministic_algorithms = set_float32_matmul_precision = lambda value: None


def rand(n):
    return generator.random()
"""
"""Stands for torch, whose import takes seconds."""
ORDERED = "from one_state import one_state, pytest_fixture_setup"


ORDERS = (("test_a.py", "test_b.py"), ("test_b.py::test_told",))


def messy(folder: Path, conftest: str, orders: Sequence[Sequence[str]] = ORDERS) -> str:
    """Two files of messy tests, which must agree with each other and between processes: the last line, and numbers."""
    folder.mkdir()
    (folder / "conftest.py").write_text(conftest)
    (folder / "torch.py").write_text(TORCH)
    note = folder / "numbers"
    told = MESSY + f"\ndef test_told():\n    open({str(note)!r}, 'a').write(f'{{numbers()[:3]}}\\n')\n"
    for name in ("test_a.py", "test_b.py"):
        (folder / name).write_text(told)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder)]
    own = {"PYTEST_ADDOPTS": "", "PYTHONPATH": str(FIXTURES), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    last = ""
    for order in orders:
        words = [*command, "-p", "no:cacheprovider", *(str(folder / name) for name in order)]
        done = subprocess.run(words, env=os.environ | own, capture_output=True, text=True)
        last += done.stdout.strip().rsplit("\n", 1)[-1] + "; "
    return f"{last}{len(set(note.read_text().splitlines()))} kinds of numbers"


def test_a_test_starts_from_the_same_state_whatever_ran_before_and_without_it_the_mess_of_others_is_seen(
    tmp_path: Path,
) -> None:
    """The test that is told alone imports torch itself."""
    told = messy(tmp_path / "with", ORDERED)
    assert "8 passed" in told
    assert "1 passed" in told
    assert told.endswith("; 1 kinds of numbers"), told
    told = messy(tmp_path / "without", "", ORDERS[:1])
    assert "failed" in told
    assert not told.endswith("; 1 kinds of numbers"), told


def test_torch_itself_starts_from_the_same_state() -> None:
    import torch

    found = []
    for _ in range(2):
        reset()
        found.append((torch.rand(1), torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()))
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
    reset()
    assert found[0] == found[1]


def test_a_random_order_keeps_files_together_and_is_that_of_its_seed() -> None:
    files = [name for name in "abcd" for _ in range(5)]
    first, again, second = (shuffled(files, seed) for seed in (1, 1, 2))
    assert first == again
    assert len({tuple(order) for order in (range(20), first, second)}) == 3
    assert sorted(first) == sorted(second) == [*range(20)]
    assert sum(files[one] != files[other] for one, other in itertools.pairwise(first)) == 3
    assert first[:5] != sorted(first[:5])
