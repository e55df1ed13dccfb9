"""Worker processes, which end with their parent even after kill -9, threads that end with a block, settings of a run.

Python delivers signals to the main thread only. So Ctrl-C and SIGTERM end the block of threads, which raises an
exception in each, so that each closes its files and ends its child processes as the main thread would.
"""

import ctypes
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from itertools import count, islice
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

_limits_s = [30.0]
T = TypeVar("T")
END_S = 5.0
"""How long threads may take to end; one that hangs in a system call is then abandoned."""
POLL_S = 0.2


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


class Threads(Generic[T]):
    """Named pieces of work, each in a thread with the context variables of the thread that started it."""

    def __init__(self, end_s: float = END_S) -> None:
        self.end_s = end_s
        self.running: dict[str, threading.Thread] = {}
        self._ended: queue.SimpleQueue[tuple[str, T | BaseException]] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        return self

    def start(self, name: str, work: Callable[[], T]) -> None:
        """Start a piece of work."""
        context = copy_context()
        # a daemon: the interpreter does not wait for an abandoned one
        thread = threading.Thread(target=context.run, args=(self._run, name, work), name=name, daemon=True)
        self.running[name] = thread
        thread.start()

    def _run(self, name: str, work: Callable[[], T]) -> None:
        try:
            self._ended.put((name, work()))
        except BaseException as error:  # noqa: BLE001 (`wait` raises it in the thread that started this)
            self._ended.put((name, error))

    def wait(self) -> tuple[str, T]:
        """Wait for the next piece of work to end; return its name and result, or raise its error."""
        while True:
            with suppress(queue.Empty):  # a thread that waits without a limit cannot be interrupted
                name, result = self._ended.get(timeout=POLL_S)
                break
        self.running.pop(name).join()
        if isinstance(result, BaseException):
            raise result
        return name, result

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the running threads, and the child processes of those that do not end in time."""
        living = [thread for thread in self.running.values() if thread.is_alive()]
        for thread in living:
            interrupt(thread)
        limit = time.monotonic() + self.end_s
        for thread in living:
            thread.join(max(0.0, limit - time.monotonic()))
        if any(thread.is_alive() for thread in living):
            for child in multiprocessing.active_children():
                child.terminate()


def in_threads(pieces: Iterable[Callable[[], T]], threads: int) -> Generator[T]:
    """Yield the results of pieces of work in their order; as many run at a time as there are threads."""
    if threads == 1:
        yield from (piece() for piece in pieces)
        return
    waiting = enumerate(pieces)
    results: dict[str, T] = {}
    with Threads[T]() as running:
        for number, piece in islice(waiting, threads):
            running.start(str(number), piece)
        for wanted in map(str, count()):
            while wanted not in results and running.running:
                name, results[name] = running.wait()
                for number, piece in islice(waiting, 1):
                    running.start(str(number), piece)
            if wanted not in results:
                return
            yield results.pop(wanted)


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread, as soon as it runs Python code again."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
