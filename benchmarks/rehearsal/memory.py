"""What processes hold and what folders take, as the system counts it (Linux)."""

from pathlib import Path


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
    """Return the anonymous and shared memory of one process, bytes; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0
    kib = {name: int(rest.split()[0]) for name, rest in (line.split(":", 1) for line in lines)}
    return 1024 * (kib.get("Pss_Anon", 0) + kib.get("Pss_Shmem", 0))


def tree_bytes(folder: Path) -> int:
    """Return the bytes that the files below a folder take on the disk; those that go meanwhile do not count."""
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += 512 * path.lstat().st_blocks
        except OSError:
            continue
    return total
