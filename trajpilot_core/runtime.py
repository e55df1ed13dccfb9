"""Worker processes, which end with the process that started them, also where kill -9 ended it; settings of a run."""

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
"""Whether models may be compiled (`RunOptions.compile_models`): nothing that a stage is given, so nothing of a key."""


@contextmanager
def compiling(enabled: bool) -> Iterator[None]:
    """Say for the block whether models may be compiled."""
    token = COMPILES.set(enabled)
    try:
        yield
    finally:
        COMPILES.reset(token)


_limits_s = [30.0]


def hold_answer_limit(seconds: float) -> None:
    """Keep for this process, and for the workers that it starts, how long an object store may take to answer."""
    _limits_s[:] = [seconds]


def answer_limit_s() -> float:
    """Return the seconds that an object store may take to begin an answer."""
    return _limits_s[0]


def start_worker() -> None:
    """Prepare a worker: Ctrl-C is the parent's, and the worker leaves as soon as the parent is gone.

    A worker of a pool would else wait for work for ever, and a training go on next to the one that was started again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def _begin(initializer: Callable[[], None], limit_s: float) -> None:
    hold_answer_limit(limit_s)
    initializer()


def end_with_parent() -> None:
    """Wait for the parent's end, then leave at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Spawned(SpawnContext):
    """Starts processes as `spawn` does and remembers them: another stage may have a pool in this process, too."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[SpawnProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """Make a process; the pool starts it."""
        self.processes.append(SpawnProcess(*args, **kwargs))
        return self.processes[-1]


@contextmanager
def worker_pool(workers: int, initializer: Callable[[], None] = start_worker) -> Iterator[ProcessPoolExecutor]:
    """Give a pool of spawned processes; a block that an error, Ctrl-C or SIGTERM leaves does not wait for their work.

    The executor's own block would: a training goes on for minutes, and its run does not end.

    Args:
        workers: processes.
        initializer: run first in each.
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
