"""The guard of `one_state`: tests that leave a mess behind, and what it does to the next one without it."""

import itertools
import os
import random

import numpy as np
import pytest
import torch
from one_state import reset
from order import shuffled

FIRST: dict[str, object] = {}
"""What the first of the messy tests found."""


def state() -> tuple[object, ...]:
    """Random numbers, and what else the tests of a process share."""
    numbers = random.random(), np.random.rand(), float(torch.rand(1))
    switches = torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled()
    return *numbers, *switches, os.environ.get("MESS")


def make_a_mess() -> None:
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    os.environ["MESS"] = "left behind"


@pytest.fixture(scope="module")
def shared() -> tuple[object, ...]:
    return state()


@pytest.mark.parametrize("number", range(3))
def test_a_test_and_what_tests_share_start_from_the_same_state_whatever_ran_before(
    number: int, request: pytest.FixtureRequest
) -> None:
    found = state()
    assert found == request.getfixturevalue("shared") == FIRST.setdefault("found", found)
    make_a_mess()


def test_without_a_reset_the_mess_of_others_is_seen() -> None:
    before = state()
    make_a_mess()
    mess = state()
    assert not any(one == other for one, other in zip(before, mess, strict=True))
    reset()
    assert state()[:-1] == before[:-1]


def test_a_random_order_keeps_files_together_and_is_that_of_its_seed() -> None:
    files = [name for name in "abcd" for _ in range(5)]
    first, again, second = (shuffled(files, seed) for seed in (1, 1, 2))
    assert first == again
    assert len({tuple(order) for order in (range(20), first, second)}) == 3
    assert sorted(first) == sorted(second) == [*range(20)]
    assert sum(files[one] != files[other] for one, other in itertools.pairwise(first)) == 3
    assert first[:5] != sorted(first[:5])
