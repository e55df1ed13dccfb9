"""Workers end with the process that started them; without the watch they stay, so the test can see it."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from trajpilot_core.workers import start_worker

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
