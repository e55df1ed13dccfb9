"""Run independent jobs in a few spawned processes that end when their parent does."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import cv2

from trajpilot_core.errors import WorldError
from trajpilot_core.runtime import start_worker, worker_pool

T = TypeVar("T")


def run_all(job: Callable[..., T], arguments: Sequence[tuple[Any, ...]], workers: int) -> Iterator[T]:
    """Run `job(*arguments[i])` for every i and yield its result, in any order.

    Args:
        job: a function at module level.
        workers: processes; 1 runs the jobs here.

    Raises:
        WorldError: a process died.
    """
    if workers <= 1 or len(arguments) <= 1:
        for one in arguments:
            yield job(*one)
        return
    with worker_pool(min(workers, len(arguments)), start_drawing) as pool:
        futures = [pool.submit(job, *one) for one in arguments]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BrokenProcessPool as error:
            raise WorldError("a process that draws takes died (memory?); run again: finished takes are kept") from error


def start_drawing() -> None:
    """Prepare a worker that draws: one OpenCV thread."""
    cv2.setNumThreads(1)
    start_worker()
