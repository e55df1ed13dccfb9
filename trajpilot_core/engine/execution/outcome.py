"""The result of running a stage, in counts, and the resources that it used.

Memory and scratch are sampled in a thread, so shorter peaks may be missed. Reads /proc; without it nothing is measured.
Imports no torch.
"""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from schemas.annotation import CorpusCount
from schemas.artifacts import ArtifactRef, Manifest
from schemas.config import RunOptions
from schemas.rejects import RejectCode
from trajpilot_core.engine.execution.reuse import scratch_folder
from trajpilot_core.errors import InputError

LOOK_S, LONGEST_S, AT_REST = 0.2, 3.0, 20
"""Seconds between two samples: at least, at most, and in units of the duration of a sample."""


@dataclass(frozen=True)
class Outcome:
    """The result of running a stage. A unit is a shard, or the whole stage where it is not sharded."""

    ref: ArtifactRef
    reused: int
    computed: int
    removed: int
    rejected: Mapping[str, int]
    """Reject code -> units lost, or rows affected where the code drops none."""
    n_in: int
    n_out: int
    seconds: float
    cached: bool
    unit: str | None
    """Kind of shard, e.g. `take`; None: the stage is not sharded."""
    counts: tuple[CorpusCount, ...] = ()
    """Counts that the stage wrote for comparison with the paper's."""

    def lost(self) -> int:
        """Return the units that were dropped."""
        return units_lost(self.rejected)

    def message(self) -> str:
        """Return the counts in words: in shards, or in rows for a stage without shards."""
        if self.unit is None:
            done = "reused" if self.cached else "computed"
            stated = [row for row in self.counts if row.paper is not None]
            same = sum(row.ours == row.paper for row in stated)
            paper = f"; {same} of {len(stated)} counts equal the paper's" if stated else ""
            return f"{done}, {self.n_in:,} rows in, {self.n_out:,} out, rejected {self.lost():,}{paper}"
        if not (self.reused or self.computed or self.removed or self.lost()):
            return f"no {self.unit} to compute"
        return f"reused {self.reused:,}, computed {self.computed:,}, removed {self.removed:,}, rejected {self.lost():,}"

    def summary(self) -> list[dict[str, str | int | float]]:
        """Return table rows: rows in and out, one row per reject code with its meaning, units, time and speed."""
        rows = [_row("rows in", self.n_in, "read by the stage"), _row("rows out", self.n_out, "written by it")]
        effects = {"drop": "rejected", "repair": "repaired", "warn": "warned"}  # only a drop costs rows
        for code, n in self.rejected.items():
            rows.append(_row(f"{effects[RejectCode(code).severity]}: {code}", n, RejectCode(code).meaning))
        rows += [_row(row.what, row.ours, _paper(row)) for row in self.counts]
        if self.unit is None:
            rows += [
                _row("computed", 0 if self.cached else 1, "the stage has no shards"),
                _row("reused", 1 if self.cached else 0, "its inputs have not changed"),
            ]
        else:
            rows += [
                _row(f"{self.unit}s computed", self.computed, "in this run"),
                _row(f"{self.unit}s reused", self.reused, "their inputs have not changed"),
                _row(f"{self.unit}s removed", self.removed, "in the previous output, not in this one"),
            ]
        rows.append(_row("seconds", round(self.seconds, 1), "wall time of the stage"))
        if self.unit is not None:
            per_s = self.computed / max(self.seconds, 1e-9)
            rows.append(_row(f"{self.unit}s per second", round(per_s, 2), "computed in those seconds"))
        return rows


def _row(what: str, count: float, meaning: str) -> dict[str, str | int | float]:
    return {"figure": what, "count": count, "meaning": meaning}


def _paper(row: CorpusCount) -> str:
    """Return the paper's count in words, and the setting behind ours where the two differ."""
    if row.paper is None:
        return "not stated in the paper" if not row.setting else f"depends on {row.setting}"
    if row.paper == row.ours:
        return "as in the paper"
    return f"the paper has {row.paper:,}" + (f"; ours depends on {row.setting}" if row.setting else "")


def units_lost(rejected: Mapping[str, int]) -> int:
    """Return the units lost, from counts by code (repairs and warnings cost none)."""
    return sum(n for code, n in rejected.items() if RejectCode(code).severity == "drop")


def check_ratio(manifest: Manifest, allowed: float) -> None:
    """Fail where too large a share of the rows was lost to damage (rows that a setting excludes are not damage).

    Raises:
        InputError: names the codes and the units that each cost.
    """
    damaged = {code: n for code, n in manifest.rejected.items() if not RejectCode(code).by_choice}
    chosen = manifest.n_in - units_lost(manifest.rejected) + units_lost(damaged)
    lost = units_lost(damaged)
    if chosen and lost / chosen > allowed:
        codes = ", ".join(f"{code} {n:,}" for code, n in damaged.items())
        raise InputError(
            f"stage {manifest.stage} rejects {lost:,} of {chosen:,} rows ({lost / chosen:.0%}), but at most "
            f"{allowed:.0%} are allowed: {codes}; fix the input, or raise --max-rejects (max_reject_ratio in Prefect's "
            "form)"
        )


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
            processes = [process for process in family(os.getpid()) if process not in others]
            peaks.memory = max(peaks.memory, sum(map(anonymous_bytes, processes)))
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
    processes = [process]
    for parent in processes:
        with suppress(OSError):  # it has ended
            for listing in Path(f"/proc/{parent}/task").glob("*/children"):
                processes += map(int, listing.read_text(encoding="utf-8").split())
    return processes


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
    total = 0
    with suppress(OSError):  # the disk fails: the stage will report it
        for folder in scratch_folder(run, stage).parent.glob(f"{stage}-*"):
            for place, _, names in os.walk(folder):
                for name in names:
                    with suppress(OSError):  # removed meanwhile
                        total += os.lstat(f"{place}/{name}").st_blocks * 512
    return total
