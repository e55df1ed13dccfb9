"""Cached digests of input files: a file is read once and then trusted while size, time and inode stay the same.

Hashing starts only a moment after the file's time of change, so that a later write is certain to change it.
"""

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from schemas.base import Record
from trajpilot_core.errors import StoreError, StoreIOError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.locations import Location, check_source_path, parse_location
from trajpilot_core.store.manifest import read_sealed, seal, unless_damaged

if TYPE_CHECKING:
    from trajpilot_core.store.objects import Objects

INVENTORY = "inventory.json"
ABSENT = "absent"
"""Digest of a missing file, which is an input too."""
UNREADABLE = "unreadable"
"""Digest of something that exists but cannot be read as a file; the stage that opens it rejects it."""
UNSTABLE = "unstable"
"""Prefix of the digest of a file that changed while it was read."""
SETTLE_S = 0.1
"""Longer than the steps of file times on common file systems (4 to 10 ms)."""
SAVING = threading.Lock()


class FileState(NamedTuple):
    """Metadata of a file; its digest is trusted while they stay the same."""

    size: int
    mtime_ns: int
    inode: int
    etag: str = ""
    """Version tag of an object store; empty for local files."""


class Remembered(NamedTuple):
    """Entry of the inventory for one file."""

    state: FileState
    sha256: str


class StoredInventory(Record):
    """The inventory as a file of the root."""

    files: dict[str, Remembered]
    """Address -> its entry."""


@dataclass
class Inventory:
    """Cached digests by address, and the data root of relative paths."""

    root: Location
    seen: dict[str, Remembered] = field(default_factory=dict)
    has_news: bool = False
    """There are entries that were not loaded."""

    def address(self, path: str) -> str | None:
        """Return the full address of an input file; None where it may not be opened (see `check_source_path`)."""
        try:
            check_source_path(path)
        except StoreError:
            return None
        return path if path.startswith("/") else f"{self.root.url().rstrip('/')}/{path}"

    def look(self, path: str) -> FileState | None:
        """Stat an input file; None where it is missing or may not be opened."""
        address = self.address(path)
        if address is None:
            return None
        try:
            if address.startswith("/"):
                status = os.stat(address)  # noqa: PTH116 (called for ten thousand files)
                return FileState(status.st_size, status.st_mtime_ns, status.st_ino)
            info = self._system.info(address)
        except StoreIOError:
            raise  # the store failed, not the file
        except (OSError, ValueError):
            return None
        return FileState(info["size"], int(info["LastModified"].timestamp() * 1e9), 0, str(info.get("ETag", "")))

    def known(self, path: str) -> str | None:
        """Return the digest of an input file without reading it; None where it must be read."""
        address, state = self.address(path), self.look(path)
        if address is None or state is None:
            return ABSENT
        seen = self.seen.get(address)
        if seen is not None and seen.state == state:
            return seen.sha256
        is_local = address.startswith("/")
        if is_local and (os.path.isdir(address) or not os.access(address, os.R_OK)):  # noqa: PTH112
            return UNREADABLE
        return None

    def hash(self, address: str) -> str:
        """Return the sha256 of a file; errors of its disk or store."""
        if not address.startswith("/"):
            return self._system.digest(address)
        with Path(address).open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()

    @cached_property
    def _system(self) -> "Objects":
        """The file system of a remote data root."""
        from trajpilot_core.store.objects import open_system

        return open_system(self.root)


def load_inventory(folder: Folder, data_root: str) -> Inventory:
    """Read the inventory of a root; a damaged one is dropped, because it can be rebuilt.

    An empty `data_root` means the working folder.
    """
    location = parse_location(data_root or ".")
    if location.protocol == "file":
        location = Location("file", str(Path(location.path).absolute()))
    return Inventory(location, _remembered(folder))


def _remembered(folder: Folder) -> dict[str, Remembered]:
    stored = unless_damaged(read_sealed, folder, StoredInventory, INVENTORY)
    return {} if stored is None else stored.files


def save_inventory(folder: Folder, inventory: Inventory) -> None:
    """Write the inventory if it has new entries; those that others wrote meanwhile are kept.

    Threads of this process take turns. Another process may lose entries at the same moment; its files are read again.
    """
    if not inventory.has_news:
        return
    with SAVING:
        inventory.seen = {**_remembered(folder), **inventory.seen}
        folder.replace(INVENTORY, seal(StoredInventory(files=inventory.seen)))
    inventory.has_news = False


def digests(
    inventory: Inventory,
    paths: Iterable[str],
    *,
    workers: int,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> dict[str, str]:
    """Return the sha256 of every input file; `absent` where it is missing, `unreadable` where it is not a readable
    file, `unstable:...` where it keeps changing.

    `paths` are relative to the data root, or absolute. New digests are added to the inventory; `progress` is called
    with (done, total, what) after every file that had to be read.
    """
    wanted = sorted(set(paths))
    digest_of = {path: inventory.known(path) for path in wanted}
    unknown = [path for path, digest in digest_of.items() if digest is None]
    with ThreadPoolExecutor(max_workers=workers) as pool:
        read = zip(unknown, pool.map(lambda p: _read_stable(inventory, p), unknown), strict=True)
        for done, (path, (digest, state)) in enumerate(read, start=1):
            digest_of[path] = digest
            progress(done, len(unknown), "input files hashed")
            address = inventory.address(path)
            if state is not None and address is not None:
                inventory.seen[address] = Remembered(state, digest)
                inventory.has_news = True
    return {path: digest for path, digest in digest_of.items() if digest is not None}


def _read_stable(inventory: Inventory, path: str) -> tuple[str, FileState | None]:
    """Hash a file, with equal metadata before and after."""
    address, before = inventory.address(path), inventory.look(path)
    if address is None or before is None:
        return ABSENT, None
    age_s = time.time() - before.mtime_ns / 1e9
    if 0 <= age_s < SETTLE_S:
        time.sleep(SETTLE_S - age_s)
    try:
        digest = inventory.hash(address)
    except StoreIOError:
        raise  # the store failed, not the file
    except OSError:
        return UNREADABLE, None
    return (digest, before) if inventory.look(path) == before else (f"{UNSTABLE}:{time.time_ns()}", None)


def moved(inventory: Inventory, digest_of: Mapping[str, str]) -> list[str]:
    """Return the input files that have changed, gone or appeared since their digests went into a key."""
    return sorted(
        path for path, digest in digest_of.items() if digest != UNREADABLE and inventory.known(path) != digest
    )
