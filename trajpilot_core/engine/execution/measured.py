"""What a stage takes while it computes: memory of its processes, of the GPU, and its scratch, sampled in a thread.

What lasts shorter than a look may be missed. Reads /proc; elsewhere nothing is measured. Imports no torch.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from schemas.config import RunOptions
from trajpilot_core.engine.execution.scratch import scratch_folder

LOOK_S, LONGEST_S, AT_REST = 0.2, 3.0, 20
"""Seconds between two looks at the memory: at least, at most, and in units of what a look takes."""
BLOCK_BYTES = 512
"""Unit in which a file system counts what a file has."""


@dataclass
class Peaks:
    """The most bytes that were seen."""

    memory: int = 0
    gpu: int = 0
    scratch: int = 0


@contextmanager
def watched(run: RunOptions, stage: str, device: str) -> Iterator[Peaks]:
    """Sample the memory of this process and of all that it starts, and the stage's scratch, while the block runs."""
    release_heap()
    peaks, ended, others = Peaks(), threading.Event(), set(family(os.getpid())[1:])

    def look() -> None:
        while True:
            looked = time.monotonic()
            own = [process for process in family(os.getpid()) if process not in others]
            peaks.memory = max(peaks.memory, sum(map(anonymous_bytes, own)))
            peaks.scratch = max(peaks.scratch, scratch_bytes(run, stage))
            if ended.wait(min(LONGEST_S, max(LOOK_S, AT_REST * (time.monotonic() - looked)))):
                return

    gpu_peak(device, reset=True)
    thread = threading.Thread(target=look, name=f"watch-{stage}", daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()
    peaks.gpu = gpu_peak(device)


def release_heap() -> None:
    """Give freed memory of this process back to the system: stages before may have left gigabytes of it in heaps."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def family(process: int) -> list[int]:
    """Return a process and all that it started, as far as they live; it alone where the system does not list them."""
    found = [process]
    for one in found:
        with suppress(OSError):  # it has ended
            for listing in Path(f"/proc/{one}/task").glob("*/children"):
                found += map(int, listing.read_text().split())
    return found


def anonymous_bytes(process: int) -> int:
    """Return the memory of a process that is no file's; 0 where it has ended or the system does not report it."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)
    return 0


def gpu_peak(device: str, *, reset: bool = False) -> int:
    """Return the most bytes that torch has allocated on a GPU in this process, perhaps to count from now on."""
    if not device.startswith("cuda") or "torch" not in sys.modules:
        return 0
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


def scratch_bytes(run: RunOptions, stage: str) -> int:
    """Return what the scratch of a stage has on disk, that of an interrupted run included."""
    found = 0
    for folder in scratch_folder(run, stage).parent.glob(f"{stage}-*"):
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    found += os.lstat(f"{place}/{name}").st_blocks * BLOCK_BYTES
    return found
