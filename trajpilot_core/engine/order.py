"""Which stages a run includes, when each may start (after those that it reads), and how many may run at a time."""

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from schemas.config import RunOptions
from trajpilot_core.engine.key import producers
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError

MEMORY_OF_A_STAGE = 16 * 10**9
"""Host memory, bytes, that no stage exceeds on the paper's corpus with the models on a GPU."""
LIMITS, LISTING = Path("/sys/fs/cgroup"), Path("/proc/meminfo")
UNKNOWN_MEMORY = 0
"""Where the system does not report it, one stage runs at a time."""


def selected_of(stages: Iterable[str], run: RunOptions) -> list[str]:
    """Return the names of the stages that `run` selects, in order.

    Args:
        stages: the names of all stages, in order.
        run: `only`, `from_stage` and `force`; forcing a stage does not select it.

    Raises:
        InputError: a name is not a stage, or the options contradict each other.
    """
    names = list(stages)
    if run.only and run.from_stage:
        raise InputError(f"only {', '.join(run.only)} and from {run.from_stage} exclude each other; give one of them")
    requested = [*run.only, *run.force, *([run.from_stage] if run.from_stage else [])]
    unknown = sorted(set(requested) - set(names))
    if unknown:
        raise InputError(f"this run has no {', '.join(unknown)}; its stages are {', '.join(names)}")
    chosen = [name for name in names if name in run.only] if run.only else names
    if run.from_stage:
        chosen = names[names.index(run.from_stage) :]
    idle = [name for name in run.force if name not in chosen]
    if idle:
        raise InputError(f"force {', '.join(idle)}: this run includes only {', '.join(chosen)}; select it, too")
    return chosen


def upstream(stages: Mapping[str, AnyStage], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return stage -> those of `names` whose entries it reads, both in the order of `names`.

    Args:
        stages: all stages by name.
        names: the stages of a run; the output of all others must exist already.

    Raises:
        StoreError: two stages declare one entry.
    """
    writer = producers(stages)
    read = {name: {writer.get(entry) for entry in stages[name].reads} for name in names}
    return {name: tuple(other for other in names if other in read[name]) for name in names}


def startable(
    waiting: Sequence[str],
    after: Mapping[str, Collection[str]],
    ended: Collection[str],
    running: Collection[str],
    limit: int,
    has_model: Callable[[str], bool],
) -> list[str]:
    """Return the stages that may start now, in the order of `waiting`.

    Only one stage with a model runs at a time: torch has one random state and one thread count per process, so two of
    them could change each other's numbers, and they would share one GPU.

    Args:
        waiting: stages that have not started.
        after: stage -> stages that must have ended before it starts (`upstream`).
        ended: stages that have ended, successfully or not.
        running: stages that run.
        limit: how many stages may run at a time.
        has_model: whether a model runs in a stage.
    """
    chosen: list[str] = []
    for name in waiting:
        busy = [*running, *chosen]
        if len(busy) >= limit:
            break
        is_blocked = any(other not in ended for other in after[name])
        if not is_blocked and not (has_model(name) and any(has_model(other) for other in busy)):
            chosen.append(name)
    return chosen


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
