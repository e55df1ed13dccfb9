"""Worker processes, which end with their parent even after kill -9, and work in threads."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def start_worker() -> None:
    """Prepare a worker: the parent handles Ctrl-C, and the worker exits as soon as the parent is gone.

    Else a pool worker would wait forever, and a training would continue next to the one that was started again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait until the parent has ended, then exit at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def worker_pool(workers: int, initializer: Callable[[], None] = start_worker) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of spawned processes; after an error, Ctrl-C or SIGTERM their work is terminated.

    The executor's own block would wait for it, for minutes in a training. The initializer runs first in each process.
    """
    others = multiprocessing.active_children()
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer)
    is_done = False
    try:
        yield pool
        is_done = True
    finally:
        for child in [] if is_done else set(multiprocessing.active_children()) - set(others):
            child.terminate()
        pool.shutdown(wait=True, cancel_futures=True)


def in_threads(pieces: Iterable[Callable[[], T]], threads: int) -> Generator[T]:
    """Yield the results of pieces of work in their order; as many run at a time as there are threads."""
    if threads == 1:
        yield from (piece() for piece in pieces)
        return
    waiting = iter(pieces)
    with ThreadPoolExecutor(threads) as pool:
        running = deque(pool.submit(copy_context().run, piece) for piece in islice(waiting, threads))
        while running:
            result = running.popleft().result()
            running.extend(pool.submit(copy_context().run, piece) for piece in islice(waiting, 1))
            yield result
