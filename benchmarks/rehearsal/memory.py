"""What processes hold and what folders take, as the system counts it (Linux)."""

from pathlib import Path

COUNTED = ("RssAnon", "RssShmem")
"""Resident anonymous and shared memory in a process's status."""


def family(pid: int) -> list[int]:
    """Return a process and all that it started, as far as they live."""
    found = [pid]
    for one in found:
        for listing in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, listing.read_text().split())
            except OSError:
                continue
    return found


def anonymous_bytes(pid: int) -> int:
    """Return the anonymous and shared memory of one process, bytes; 0 where it has ended.

    Of the kernel's counters: to sum up its maps (smaps_rollup) takes a tenth of a second for a large process, and holds
    it up meanwhile. What two processes share is counted in both.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    kib = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines) if name in COUNTED}
    return 1024 * sum(kib.values())


def tree_bytes(folder: Path) -> int:
    """Return the bytes that the files below a folder take on the disk; those that go meanwhile do not count."""
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += 512 * path.lstat().st_blocks
        except OSError:
            continue
    return total
