"""Concurrent work in threads of this process, which end when the block that started them is interrupted.

Python delivers signals to the main thread only. So Ctrl-C and SIGTERM end the block here, which raises an exception in
its threads, so that each closes its files and ends its child processes as the main thread would.
"""

import ctypes
import multiprocessing
import queue
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from types import TracebackType
from typing import Generic, Self, TypeVar

T = TypeVar("T")
END_S = 5.0
"""How long threads may take to end; one that hangs in a system call is then abandoned."""


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
        name, result = self._ended.get()
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


def interrupt(thread: threading.Thread) -> None:
    """Raise KeyboardInterrupt in a thread, as soon as it runs Python code again."""
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(KeyboardInterrupt))
