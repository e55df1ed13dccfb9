"""Folders of the store: files are written whole and become visible atomically.

A local write is a sibling temporary file, fsync, `os.replace`, fsync of the folder; an object store gets one PUT.
Reasons and measurements: docs/decisions/store.md.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trajpilot_core.errors import StoreIOError
from trajpilot_core.store.locations import NAME, check_relative, parse_location

if TYPE_CHECKING:
    from trajpilot_core.store.objects import Objects

TEMPORARY = ".tmp-"
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}


@dataclass(frozen=True)
class LocalFolder:
    """A folder on this machine."""

    url: str

    def local(self, path: str) -> Path:
        """Return the absolute path."""
        return Path(self.url, check_relative(path))

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        target = self.local(path)
        with naming_failures("read", target):
            return target.read_bytes()

    def size(self, path: str) -> int | None:
        """Return the size in bytes, None where there is no such file."""
        target = self.local(path)
        with naming_failures("look at", target):
            try:
                return target.stat().st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def replace(self, path: str, content: bytes) -> None:
        """Write the whole file atomically, replacing any older one."""
        with self._temporary(path, content) as (temporary, target):
            temporary.replace(target)

    def create(self, path: str, content: bytes) -> bool:
        """Write the whole file unless one exists; True where this call made it."""
        if self.size(path) is not None:
            return False
        with self._temporary(path, content) as (temporary, target):
            try:
                target.hardlink_to(temporary)
            except FileExistsError:
                return False
            except OSError:  # a file system without hard links
                temporary.replace(target)
        return True

    @contextlib.contextmanager
    def _temporary(self, path: str, content: bytes) -> Iterator[tuple[Path, Path]]:
        """Write a file next to where it belongs, and make the folder durable after the block."""
        target = self.local(path)
        temporary = target.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}")
        with naming_failures("write", target, len(content)):
            _make_folder(target.parent)
            try:
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
                try:
                    view = memoryview(content)
                    while view:
                        view = view[os.write(handle, view) :]
                    os.fsync(handle)
                finally:
                    os.close(handle)
                yield temporary, target
            finally:
                with contextlib.suppress(OSError):  # `gc` removes it later
                    temporary.unlink(missing_ok=True)
            _sync_folder(target.parent)

    def remove(self, path: str) -> None:
        """Remove the file if it exists."""
        target = self.local(path)
        with naming_failures("remove", target):
            target.unlink(missing_ok=True)

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder that `check_name` allows, so no temporary files."""
        target = self.local(path)
        with naming_failures("list", target):
            try:
                entries = [entry.name for entry in target.iterdir()]
            except (FileNotFoundError, NotADirectoryError):
                return []
        return sorted(filter(NAME.fullmatch, entries))


@dataclass(frozen=True)
class ObjectFolder:
    """A prefix of a bucket."""

    url: str
    system: "Objects"
    prefix: str

    def _at(self, path: str) -> str:
        return f"{self.prefix}/{check_relative(path)}"

    def local(self, path: str) -> Path | None:
        """Return None: there are no local files."""
        check_relative(path)
        return None

    def read(self, path: str) -> bytes:
        """Return the whole object."""
        try:
            return self.system.cat_file(self._at(path))
        except FileNotFoundError as error:
            raise StoreIOError(f"cannot read {self.url}/{path}: {error}") from error

    def size(self, path: str) -> int | None:
        """Return the size in bytes; None where there is no such object."""
        try:
            return int(self.system.info(self._at(path))["size"])
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        """Write the whole object, replacing any older one."""
        try:
            self.system.put(self._at(path), content)
        except FileNotFoundError as error:
            raise StoreIOError(f"cannot write {self.url}/{path}: {error}") from error

    def create(self, path: str, content: bytes) -> bool:
        """Write the object unless one exists; True where this call made it."""
        try:
            self.system.put(self._at(path), content, "create")
        except FileExistsError:
            return False
        return True

    def remove(self, path: str) -> None:
        """Remove the object if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.system.remove(self._at(path))

    def names(self, path: str) -> list[str]:
        """Return the sorted names below a prefix that `check_name` allows."""
        try:
            entries = self.system.ls(self._at(path))
        except FileNotFoundError:
            return []
        return sorted(filter(NAME.fullmatch, (entry["name"].rpartition("/")[2] for entry in entries)))


Folder = LocalFolder | ObjectFolder
"""A root to read and write below; paths are relative, with `/`, each part as `check_name` allows."""


def open_folder(url: str) -> Folder:
    """Open a root; nothing is created before the first write.

    Raises:
        StoreError: the address is not allowed (see `parse_location`), or its library is not installed.
    """
    location = parse_location(url)
    if location.protocol == "file":
        return LocalFolder(str(Path(location.path).absolute()))
    from trajpilot_core.store.objects import open_system

    return ObjectFolder(location.url(), open_system(location), location.path)


@contextlib.contextmanager
def naming_failures(doing: str, target: Path | str, size_bytes: int | None = None) -> Iterator[None]:
    """Turn an error of the operating system into a StoreIOError that names operation, path, cause and remedy."""
    try:
        yield
    except StoreIOError:
        raise
    except OSError as error:
        size = "" if size_bytes is None else f" ({size_bytes:,} bytes)"
        raise StoreIOError(f"cannot {doing} {target}{size}: {error.strerror or error}; {advice(error)}") from error


def advice(error: OSError) -> str:
    """Return the remedy for an error of the operating system."""
    remedy = "free some space there" if error.errno in NO_SPACE else "fix the path, its permissions or the disk"
    return f"nothing that was committed before is lost: {remedy}, then run again"


def _make_folder(folder: Path) -> None:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        _sync_folder(new.parent)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
