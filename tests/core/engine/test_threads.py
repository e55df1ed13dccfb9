"""Work side by side in threads: it overlaps, its errors arrive, and an interrupt ends it with its child processes."""

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

from trajpilot_core import runtime
from trajpilot_core.runtime import Threads, in_threads, start_worker, worker_pool

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


def test_a_pool_that_breaks_off_leaves_the_processes_of_another_stage_alone(tmp_path: Path) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"

    def break_off() -> None:
        with worker_pool(1) as pool:
            pool.submit(work, str(mine))
            other.submit(work, str(others))  # its process is the younger one
            assert until(lambda: mine.exists() and others.exists())
            raise ValueError("planted")

    with pytest.raises(KeyboardInterrupt), worker_pool(1) as other:  # noqa: PT012
        with pytest.raises(ValueError, match="planted"):
            break_off()
        assert until(lambda: not is_running(int(mine.read_text())))
        assert is_running(int(others.read_text()))
        raise KeyboardInterrupt
    assert until(lambda: not is_running(int(others.read_text())))


WORD: ContextVar[str] = ContextVar("WORD")


def test_pieces_of_work_overlap_and_see_the_context_of_who_started_them() -> None:
    meet = threading.Barrier(2, timeout=30.0)
    WORD.set("here")

    def piece() -> str:
        meet.wait()
        return WORD.get()

    with Threads[str]() as threads:
        threads.start("a", piece)
        threads.start("b", piece)
        assert dict([threads.wait(), threads.wait()]) == {"a": "here", "b": "here"}
        assert threads.running == {}
        threads.start("fails", lambda: str(1 // 0))
        with pytest.raises(ZeroDivisionError):
            threads.wait()


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_are_in_order_and_as_many_pieces_run_as_there_are_threads(threads: int) -> None:
    meet, lock = threading.Barrier(threads, timeout=30.0), threading.Lock()
    running, most = 0, 0

    def piece(number: int) -> int:
        nonlocal running, most
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


@pytest.mark.parametrize(("poll_s", "is_ended"), [(0.1, True), (60.0, False)], ids=["ours", "planted"])
def test_a_thread_that_reads_results_is_interrupted_while_it_waits(
    monkeypatch: pytest.MonkeyPatch, poll_s: float, is_ended: bool
) -> None:
    monkeypatch.setattr(runtime, "POLL_S", poll_s)
    over, ended = threading.Event(), threading.Event()

    def endless() -> None:
        try:
            while not over.wait(0.01):
                pass
        finally:
            ended.set()

    def leave() -> None:
        with Threads[None](end_s=20.0 if is_ended else 0.5) as threads:
            threads.start("stage", lambda: list(in_threads([endless, endless], 2)) and None)
            time.sleep(0.1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave()
    assert ended.is_set() is is_ended, "one that hangs is left behind"
    over.set()


def pool_in_a_thread(note: str) -> None:
    """A stage with a process of its own, which works for minutes."""
    with worker_pool(1) as pool:
        done = pool.submit(work, note)
        while not done.done():
            time.sleep(0.05)


def interrupted(note: str) -> None:
    """Body of a parent that ends as a flow ends: with an exception."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(3)

    signal.signal(signal.SIGTERM, stop)
    with Threads[None]() as threads:
        threads.start("stage", lambda: pool_in_a_thread(note))
        Path(note).with_suffix(".waits").touch()
        threads.wait()


def test_a_run_that_is_told_to_end_ends_its_threads_and_their_processes(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    parent = multiprocessing.get_context("spawn").Process(target=interrupted, args=(str(note),))
    parent.start()
    assert until(lambda: note.exists() and note.with_suffix(".waits").exists())
    parent.terminate()
    parent.join(WAIT_S)
    assert parent.exitcode == 3
    assert until(lambda: not is_running(int(note.read_text())))
