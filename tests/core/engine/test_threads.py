"""Worker processes end with their parent; work in threads overlaps, keeps its order, and its errors arrive."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextvars import ContextVar
from functools import partial
from pathlib import Path

import pytest

from trajpilot_core.runtime import in_threads, start_worker, worker_pool

WAIT_S = 60.0


def work(note: str) -> None:
    """Body of the worker: say who it is, then work for long."""
    Path(note).with_suffix(".new").write_text(str(os.getpid()))
    Path(note).with_suffix(".new").rename(note)
    time.sleep(600)


def hold_a_pool(note: str, initializer: Callable[[], None] | None) -> None:
    """Body of the parent that is killed."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=initializer) as pool:
        pool.submit(work, note).result()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def until(true: Callable[[], bool], limit_s: float = WAIT_S) -> bool:
    end = time.monotonic() + limit_s
    while not true() and time.monotonic() < end:
        time.sleep(0.05)
    return true()


@pytest.mark.parametrize(("initializer", "stays"), [(start_worker, False), (None, True)], ids=["watching", "planted"])
def test_a_worker_is_gone_soon_after_its_parent_was_killed(
    tmp_path: Path, initializer: Callable[[], None] | None, stays: bool
) -> None:
    note = tmp_path / "pid"
    parent = multiprocessing.get_context("spawn").Process(target=hold_a_pool, args=(str(note), initializer))
    parent.start()
    assert until(note.exists)
    worker = int(note.read_text())
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    assert until(lambda: not is_running(worker), 2.0 if stays else WAIT_S) is not stays
    if stays:
        os.kill(worker, signal.SIGKILL)


def test_a_pool_that_breaks_off_ends_its_processes_and_leaves_older_ones_alone(tmp_path: Path) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"

    def break_off() -> None:
        with worker_pool(1) as pool:
            pool.submit(work, str(mine))
            assert until(mine.exists)
            raise ValueError("planted")

    with pytest.raises(KeyboardInterrupt), worker_pool(1) as other:  # noqa: PT012
        other.submit(work, str(others))
        assert until(others.exists)
        with pytest.raises(ValueError, match="planted"):
            break_off()
        assert until(lambda: not is_running(int(mine.read_text())))
        assert is_running(int(others.read_text()))
        raise KeyboardInterrupt
    assert until(lambda: not is_running(int(others.read_text())))


WORD: ContextVar[str] = ContextVar("WORD")


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_are_in_order_and_as_many_pieces_run_as_there_are_threads(threads: int) -> None:
    meet, lock = threading.Barrier(threads, timeout=30.0), threading.Lock()
    WORD.set("here")
    running, most = 0, 0

    def piece(number: int) -> int:
        nonlocal running, most
        assert WORD.get() == "here", "a piece sees the context of who started it"
        with lock:
            running += 1
            most = max(most, running)
        if number < threads:
            meet.wait()  # else too few run at a time
        time.sleep(0.01 if number % 2 == 0 else 0.0)
        with lock:
            running -= 1
        return number

    assert list(in_threads((partial(piece, number) for number in range(12)), threads)) == list(range(12))
    assert list(in_threads((), threads)) == []
    assert most == threads, "never more"
    with pytest.raises(ZeroDivisionError):
        list(in_threads((partial(divmod, 1, 2 - number) for number in range(5)), threads))
