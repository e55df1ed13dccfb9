"""Resources of a running stage: memory of its processes and of the GPU, and its scratch, sampled in a thread.

Peaks shorter than the sampling interval may be missed. Reads /proc; without it nothing is measured. Imports no torch.
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
"""Seconds between two samples: at least, at most, and in units of the duration of a sample."""
BLOCK_BYTES = 512
"""Unit of st_blocks."""


@dataclass
class Peaks:
    """Highest number of bytes sampled."""

    memory: int = 0
    gpu: int = 0
    scratch: int = 0


@contextmanager
def watched(run: RunOptions, stage: str, device: str) -> Iterator[Peaks]:
    """Sample the memory of this process and its children, and the stage's scratch, while the block runs."""
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
    """Return freed memory to the system: earlier stages may have left gigabytes in the heap."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def family(process: int) -> list[int]:
    """Return a process and its living descendants; it alone where the system does not list them."""
    found = [process]
    for one in found:
        with suppress(OSError):  # it has ended
            for listing in Path(f"/proc/{one}/task").glob("*/children"):
                found += map(int, listing.read_text(encoding="utf-8").split())
    return found


def anonymous_bytes(process: int) -> int:
    """Return the anonymous memory of a process; 0 where it has ended or the system does not report it."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
        return next((1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)
    return 0


def gpu_peak(device: str, *, reset: bool = False) -> int:
    """Return the peak bytes that torch has allocated on a GPU in this process; `reset` starts a new count."""
    if not device.startswith("cuda") or "torch" not in sys.modules:
        return 0
    import torch

    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return 0
    if reset:
        torch.cuda.reset_peak_memory_stats(device)
    return torch.cuda.max_memory_allocated(device)


def scratch_bytes(run: RunOptions, stage: str) -> int:
    """Return the bytes on disk of a stage's scratch, including that of interrupted runs."""
    found = 0
    for folder in scratch_folder(run, stage).parent.glob(f"{stage}-*"):
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):  # removed meanwhile
                    found += os.lstat(f"{place}/{name}").st_blocks * BLOCK_BYTES
    return found
