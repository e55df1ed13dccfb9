"""Memory that runs out at the n-th call: the same results from smaller parts, and what is done is not done again."""

import itertools
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from trajpilot_core.errors import InputError
from trajpilot_core.memory import SAID, in_parts, is_out_of_memory

ERRORS = [torch.OutOfMemoryError("planted"), *(RuntimeError(f"CUDA error: {said} when calling x") for said in SAID)]
ROWS = torch.arange(23.0)


def failing(
    work: Callable[[slice], Tensor], at: set[int], error: RuntimeError = ERRORS[0]
) -> Callable[[slice], Tensor]:
    """Let some calls of `work`, counted from 1, find no memory."""
    calls = itertools.count(1)

    def planted(rows: slice) -> Tensor:
        if next(calls) in at:
            raise error
        return work(rows)

    return planted


def squares(rows: slice) -> Tensor:
    return ROWS[rows] ** 2


def test_a_lack_of_memory_at_any_call_changes_nothing() -> None:
    for error, at in itertools.product(ERRORS, ({1}, {2}, {3}, {1, 2, 3}, {2, 4})):
        parts = in_parts(len(ROWS), 8, failing(squares, at, error))
        assert torch.equal(torch.cat(parts), ROWS**2), (error, at)


def test_finished_parts_are_not_done_again_and_later_ones_are_smaller(caplog: pytest.LogCaptureFixture) -> None:
    done: list[slice] = []

    def noted(rows: slice) -> Tensor:
        done.append(rows)
        return squares(rows)

    in_parts(23, 8, failing(noted, {2}))
    assert [(rows.start, rows.stop) for rows in done] == [(0, 8), (8, 12), (12, 16), (16, 20), (20, 23)]
    assert caplog.messages == ["out of memory; continuing with 4 rows at once"]


def test_a_single_row_that_does_not_fit_is_named_with_what_to_do() -> None:
    with pytest.raises(InputError, match="a single row does not fit into memory: planted; choose another device"):
        in_parts(23, 8, failing(squares, set(range(1, 99))))


def test_work_that_fills_its_parts_is_halved_down_to_one_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    sizes: list[int] = []
    parts = in_parts(1, 8, failing(squares, {1, 2, 3}), sizes.append)
    assert sizes == [4, 2, 1]
    assert caplog.messages == []
    assert torch.equal(torch.cat(parts), ROWS[:1] ** 2)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        in_parts(23, 8, failing(squares, {1}, RuntimeError("shapes do not match")))
    assert not is_out_of_memory(RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"))
    assert in_parts(0, 8, failing(squares, {1})) == [], "no rows are no work"


def test_the_tensors_of_a_failed_part_are_free_before_the_next_is_tried() -> None:
    held: list[weakref.ref[Tensor]] = []
    alive: list[bool] = []

    def work(rows: slice) -> Tensor:
        alive.extend(ref() is not None for ref in held)
        big = torch.ones(1000)
        if not held:
            held.append(weakref.ref(big))
            raise torch.OutOfMemoryError("planted")
        return big[rows]

    in_parts(4, 4, work)
    assert alive == [False, False]
