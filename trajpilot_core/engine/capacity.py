"""How many stages this machine can run at a time."""

import os
from pathlib import Path

MEMORY_OF_A_STAGE = 16 * 10**9
"""Host memory, bytes, that no stage exceeds on the paper's corpus with the models on a GPU."""
LIMITS, LISTING = Path("/sys/fs/cgroup"), Path("/proc/meminfo")
UNKNOWN_MEMORY = 0
"""Where the system does not report it, one stage runs at a time."""


def stages_at_once(stated: int | None, workers: int) -> int:
    """Return how many stages may run at a time.

    Args:
        stated: RunOptions.stages_at_once; None: what the machine allows.
        workers: processes of each stage, in addition to about one core for the stage itself.
    """
    if stated is not None:
        return stated
    return max(1, min(usable_cores() // (workers + 1), usable_memory() // MEMORY_OF_A_STAGE))


def usable_cores(limits: Path = LIMITS) -> int:
    """Return the cores that this process may use: its affinity, or the quota of its container (cgroup v2)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _words(limits / "cpu.max")
    if len(quota) == 2 and quota[0].isdigit():
        cores = min(cores, max(1, int(quota[0]) // int(quota[1])))
    return cores


def usable_memory(listing: Path = LISTING, limits: Path = LIMITS) -> int:
    """Return the bytes of memory that are free, or the limit of the container (cgroup v2) where that is less."""
    lines = [line.split() for line in listing.read_text(encoding="utf-8").splitlines()] if listing.exists() else []
    free = next((int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"), UNKNOWN_MEMORY)
    limit = _words(limits / "memory.max")
    return min(free, int(limit[0])) if limit and limit[0].isdigit() else free


def free_memory(listing: Path = LISTING, limits: Path = LIMITS) -> int | None:
    """Return the bytes of memory that new work may take; None where the system does not report it.

    In a container (cgroup v2): its limit minus the memory of its processes, since its file cache can be dropped.
    """
    free = usable_memory(listing, limits)
    if free == UNKNOWN_MEMORY:
        return None
    limit, used = _words(limits / "memory.max"), _words(limits / "memory.stat")
    if not (limit and limit[0].isdigit() and "anon" in used):
        return free
    return min(free, max(0, int(limit[0]) - int(used[used.index("anon") + 1])))


def _words(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.is_file() else []
