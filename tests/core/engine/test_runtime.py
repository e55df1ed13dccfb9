"""Workers end with the process that started them; without the watch or the pool of ours they stay, and it is seen."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from trajpilot_core.runtime import start_worker, worker_pool

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


def raise_on_sigterm() -> None:
    """End this process as a flow ends: with an exception."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(3)

    signal.signal(signal.SIGTERM, stop)


def interrupted_in_a_pool(note: str, pool_of: Callable[[], AbstractContextManager[Executor]]) -> None:
    """Body of a parent."""
    raise_on_sigterm()
    with pool_of() as pool:
        pool.submit(work, note)
        Path(note).with_suffix(".waits").touch()
        time.sleep(600)


def ends_on_sigterm(body: Callable[..., None], note: Path, *arguments: object, waits: bool) -> None:
    """Check that a parent ends with its worker, unless it is one that waits for the worker's work."""
    parent = multiprocessing.get_context("spawn").Process(target=body, args=(str(note), *arguments))
    parent.start()
    assert until(lambda: note.exists() and note.with_suffix(".waits").exists())
    parent.terminate()
    parent.join(3.0 if waits else WAIT_S)
    assert parent.is_alive() is waits
    parent.kill()
    parent.join()
    assert until(lambda: not is_running(int(note.read_text())))
    assert waits or parent.exitcode == 3


def ours() -> AbstractContextManager[Executor]:
    return worker_pool(1)


def plain() -> AbstractContextManager[Executor]:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=start_worker)


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


@pytest.mark.parametrize(("pool_of", "waits"), [(ours, False), (plain, True)], ids=["ours", "planted"])
def test_a_run_that_is_told_to_end_does_not_wait_for_the_work_of_its_pool(
    tmp_path: Path, pool_of: Callable[[], AbstractContextManager[Executor]], waits: bool
) -> None:
    ends_on_sigterm(interrupted_in_a_pool, tmp_path / "pid", pool_of, waits=waits)


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
