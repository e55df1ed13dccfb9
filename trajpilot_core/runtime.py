"""Worker processes, which end with their parent even after kill -9, and settings of a run."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

COMPILES: ContextVar[bool] = ContextVar("compile_models", default=False)
"""Whether models may be compiled (`RunOptions.compile_models`): no input of a stage, so not part of a key."""


@contextmanager
def compiling(enabled: bool) -> Iterator[None]:
    """Set for the block whether models may be compiled."""
    token = COMPILES.set(enabled)
    try:
        yield
    finally:
        COMPILES.reset(token)


_limits_s = [30.0]


def hold_answer_limit(seconds: float) -> None:
    """Set the time limit of object stores for this process and the workers that it starts."""
    _limits_s[:] = [seconds]


def answer_limit_s() -> float:
    """Return the seconds that an object store may take until its response begins."""
    return _limits_s[0]


def start_worker() -> None:
    """Prepare a worker: the parent handles Ctrl-C, and the worker exits as soon as the parent is gone.

    Else a pool worker would wait forever, and a training would continue next to the one that was started again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _begin(initializer: Callable[[], None], limit_s: float) -> None:
    hold_answer_limit(limit_s)
    initializer()


def end_with_parent() -> None:
    """Wait until the parent has ended, then exit at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Spawned(SpawnContext):
    """Starts processes as `spawn` does and remembers them, because other stages may have pools in this process."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """Create a process; the pool starts it."""
        self.processes.append(SpawnProcess(*args, **kwargs))
        return self.processes[-1]


@contextmanager
def worker_pool(workers: int, initializer: Callable[[], None] = start_worker) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of spawned processes; after an error, Ctrl-C or SIGTERM their work is terminated.

    The executor's own block would wait for it, for minutes in a training.

    Args:
        workers: number of processes.
        initializer: runs first in each.
    """
    spawned = Spawned()
    begin = (initializer, answer_limit_s())
    pool = ProcessPoolExecutor(workers, mp_context=spawned, initializer=_begin, initargs=begin)
    is_done = False
    try:
        yield pool
        is_done = True
    finally:
        for child in spawned.processes:
            if not is_done and child.is_alive():
                child.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
