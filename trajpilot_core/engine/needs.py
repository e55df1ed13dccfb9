"""Memory, disk and time that a stage will need, scaled from its last run record; and which settings lower them.

Source: docs/decisions/needs.md. Imports neither torch nor Prefect.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas.artifacts import Entry, RunRecord
from schemas.config import RunOptions
from trajpilot_core.engine.execution.outcome import anonymous_bytes, scratch_bytes
from trajpilot_core.engine.key import KeyedStage
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.lock import require_free_space
from trajpilot_core.store.manifest import ARTIFACTS, read_manifest, unless_damaged
from trajpilot_core.store.reading import run_records_of

log = logging.getLogger("trajpilot")
LIMITS, LISTING = Path("/sys/fs/cgroup"), Path("/proc/meminfo")


@dataclass(frozen=True)
class Needs:
    """Expected needs of a stage: its last run record, scaled."""

    seconds: float
    memory: int | None
    """Bytes; None: not measured."""
    gpu: int
    disk: int


def last_note(folder: Folder, stage: str) -> tuple[str, RunRecord] | None:
    """Return key and record of the run that computed most units of a stage; None: it never ran."""
    ran = [(key, record) for key, record in run_records_of(folder, stage) if record.computed]
    return max(ran, key=lambda run: run[1].computed, default=None)


def rows_read(reads: Iterable[str], entries: Mapping[str, Entry]) -> int | None:
    """Return the rows of the entries that a stage reads; None where one does not exist."""
    rows = [entries[name].rows if name in entries else None for name in reads]
    return None if None in rows else sum(n for n in rows if n is not None)


def expected(folder: Folder, stage: AnyStage, rows: int | None = None, units: int | None = None) -> Needs | None:
    """Return the expected needs of a stage for the rows that it reads now and the units that it computes.

    None for either means as many as then. Returns None before its first run.
    """
    note = last_note(folder, stage.name)
    return None if note is None else scaled(stage, note[1], rows, units)


def scaled(stage: AnyStage, noted: RunRecord, rows: int | None, units: int | None) -> Needs:
    """Return a run record scaled to other rows and units.

    Time and disk grow with the computed units and the rows that each reads (a take reads only its own). Memory grows
    with the rows but never shrinks below the record, because models, batches and libraries stay.
    """
    growth = rows / noted.rows if rows and noted.rows else 1.0
    work = (noted.computed if units is None else units) / noted.computed * (1.0 if stage.shard_by == "take" else growth)
    at_least = max(1.0, growth)
    memory = None if noted.memory_bytes is None else round(noted.memory_bytes * at_least)
    return Needs(noted.seconds * work, memory, round(noted.gpu_bytes * at_least), round(noted.disk_bytes * work))


def require_room(work: KeyedStage, folder: Folder, run: RunOptions, units: int) -> None:
    """Fail before computing where the disk lacks the expected space; warn where memory is short.

    A record of other settings never fails a stage: lowering a setting must help.

    Raises:
        StoreError: too little disk space is free.
    """
    stage, settings = work.resolved.stage, work.resolved.config
    entries = {name: entry for name, (_, entry) in work.resolved.inputs.entries.items()}
    note = last_note(folder, stage.name)
    if note is None:
        return
    needs = scaled(stage, note[1], rows_read(entries, entries), units)
    free, used = free_memory(), anonymous_bytes(os.getpid())
    if free is not None and needs.memory is not None and needs.memory - used > free:
        figures = f"{size_text(needs.memory)} of memory in its last run, but {size_text(free)} is free"
        log.warning("%-13s needed %s; if it runs out, %s", stage.name, figures, advice(stage))
    root, manifest = folder.local(ARTIFACTS), unless_damaged(read_manifest, folder, stage.name, note[0])
    if root is not None and manifest is not None and manifest.config == settings.content():
        lacking = max(0, needs.disk - scratch_bytes(run, stage.name))
        lower = f", or lower {' or '.join(stage.lowers)}" if stage.lowers else ""
        what, remedy = f"stage {stage.name}, by its last run,", f"free some space or choose another --root{lower}"
        require_free_space(root.parent, lacking, what, remedy)


def free_memory(listing: Path = LISTING, limits: Path = LIMITS) -> int | None:
    """Return the bytes of memory that new work may take; None where the system does not report it.

    In a container (cgroup v2): at most its limit minus the memory of its processes, since its file cache can be
    dropped.
    """
    lines = [line.split() for line in listing.read_text(encoding="utf-8").splitlines()] if listing.exists() else []
    free = next((int(line[1]) * 1024 for line in lines if line[0] == "MemAvailable:"), None)
    limit, used = _words(limits / "memory.max"), _words(limits / "memory.stat")
    if free is None or not (limit and limit[0].isdigit()):
        return free
    taken = int(used[used.index("anon") + 1]) if "anon" in used else 0
    return min(free, max(0, int(limit[0]) - taken))


def _words(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split() if path.is_file() else []


@contextmanager
def naming_settings(stage: AnyStage) -> Iterator[None]:
    """Turn an out-of-memory error inside the block into one that names the settings to lower.

    Raises:
        InputError: memory ran out, and no batch could be halved further.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError):
            from trajpilot_core.memory import is_out_of_memory

            if not is_out_of_memory(error):
                raise
        raise InputError(f"stage {stage.name} ran out of memory ({error}); {advice(stage)}") from error


def advice(stage: AnyStage) -> str:
    """Return in words what lowers the memory of a stage."""
    return f"lower {', '.join([*stage.lowers, '--workers'])}, or choose another --device"


def size_text(n_bytes: int) -> str:
    """Format a number of bytes in gigabytes, small ones in megabytes."""
    return f"{n_bytes / 1e9:.1f} GB" if n_bytes >= 10**9 else f"{-(-n_bytes // 10**6)} MB"
