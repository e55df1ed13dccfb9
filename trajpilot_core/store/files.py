"""Folders of the store: files are written whole and become visible atomically.

A local write is a sibling temporary file, fsync, `os.replace`, fsync of the folder; an object store gets one PUT.
Reasons and measurements: docs/decisions/store.md.
"""

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trajpilot_core.errors import StoreError, StoreIOError
from trajpilot_core.store.locations import ALLOWED_PROTOCOLS, NAME, check_relative, parse_location, resolved

TEMPORARY = ".tmp-"
PROBE_BYTES = 1 << 20
NO_SPACE = {errno.ENOSPC, errno.EDQUOT}
NO_PERMISSION = {errno.EACCES, errno.EPERM, errno.EROFS}
NO_PATH = {errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOENT}
NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EXDEV}


class Folder(Protocol):
    """A root to read and write below; paths are relative, with `/`, each part as `check_name` allows."""

    @property
    def url(self) -> str:
        """The root's address."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole file; StoreError where it is missing or unreadable."""
        ...

    def size(self, path: str) -> int | None:
        """Return the size in bytes, None where there is no such file."""
        ...

    def replace(self, path: str, content: bytes) -> None:
        """Write the whole file atomically, replacing any older one."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Write the whole file unless one exists; True where this call made it."""
        ...

    def remove(self, path: str) -> None:
        """Remove the file if it exists."""
        ...

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a folder that `check_name` allows; empty where it does not exist."""
        ...

    def local(self, path: str) -> Path | None:
        """Return the path on this machine, None on an object store."""
        ...


def open_folder(url: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> Folder:
    """Open a root; nothing is created before the first write.

    Raises:
        StoreError: the address is not allowed (see `parse_location`), or its library is not installed.
    """
    location = parse_location(url, allowed)
    if location.protocol == "file":
        return LocalFolder(str(Path(location.path).absolute()))
    from trajpilot_core.store.objects import ObjectFolder, open_system

    return ObjectFolder(location.url(), open_system(location), location.path)


@dataclass(frozen=True)
class LocalFolder:
    """A folder on this machine."""

    url: str
    _checked: set[str] = field(default_factory=set, repr=False, compare=False)
    """Folders that were checked: no link leads out of the root."""

    def local(self, path: str) -> Path:
        """Return the checked absolute path; StoreError where a link leads out of the root."""
        root = Path(self.url)
        target = root / check_relative(path)
        if _has_link(self.url, path) and not resolved(target.parent).is_relative_to(resolved(root)):
            raise StoreError(f"{target} leaves the root {root} through a link; remove the link")
        return target

    def _readable(self, path: str) -> str:
        """Return the path of a file for reading, checked as by `local`, but each folder only once.

        `status` of a large corpus checks ten thousand files. What is read is compared with a digest, so a link that is
        added later is refused as damage.
        """
        check_relative(path)
        folder = path.rpartition("/")[0]
        if folder not in self._checked:
            if _has_link(self.url, path):
                self.local(path)
            self._checked.add(folder)
        return f"{self.url}/{path}"

    def read(self, path: str) -> bytes:
        """Return the whole file."""
        target = self._readable(path)
        with naming_failures("read", target):
            is_link = os.path.islink(target)  # noqa: PTH114 (a plan reads thousands of records)
            if is_link and not resolved(target).is_relative_to(resolved(self.url)):
                raise StoreError(f"{target} is a link out of the root; remove it")
            with open(target, "rb", buffering=0) as handle:  # noqa: PTH123
                return handle.readall()

    def size(self, path: str) -> int | None:
        """Return the size in bytes, None where there is no such file."""
        target = self._readable(path)
        with naming_failures("look at", target):
            try:
                return os.lstat(target).st_size
            except (FileNotFoundError, NotADirectoryError):
                return None

    def replace(self, path: str, content: bytes) -> None:
        """Write the whole file atomically, replacing any older one."""
        target = self.local(path)
        with naming_failures("write", target, len(content)):
            temporary = _write_temporary(target, content)
            try:
                temporary.replace(target)
            except OSError:
                _discard(temporary)
                raise
            _sync_folder(target.parent)

    def create(self, path: str, content: bytes) -> bool:
        """Write the whole file unless one exists; True where this call made it."""
        target = self.local(path)
        with naming_failures("write", target, len(content)):
            if target.exists():
                return False
            temporary = _write_temporary(target, content)
            try:
                is_new = _link_or_replace(temporary, target)
            finally:
                _discard(temporary)
            _sync_folder(target.parent)
        return is_new

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


def _has_link(root: str, path: str) -> bool:
    """Return whether a folder between the root and a file is a link; only then can the path leave the root."""
    place = root
    for part in path.split("/")[:-1]:
        place = f"{place}/{part}"
        if os.path.islink(place):  # noqa: PTH114 (called for thousands of files)
            return True
    return False


@contextlib.contextmanager
def naming_failures(doing: str, target: Path | str, size_bytes: int | None = None) -> Iterator[None]:
    """Turn an error of the operating system into a StoreIOError that names path, cause and remedy.

    Args:
        doing: the operation, for the message.
        target: file or folder.
        size_bytes: bytes that are written.
    """
    try:
        yield
    except StoreIOError:
        raise
    except OSError as error:
        size = "" if size_bytes is None else f" ({size_bytes:,} bytes)"
        raise StoreIOError(f"cannot {doing} {target}{size}: {error.strerror or error}; {advice(error)}") from error


def asked_again(folder: Path, message: str) -> OSError:
    """Return why writing to a folder failed, where a library does not report the cause, by writing a small file.

    Args:
        folder: where the library wrote; its partial file still exists.
        message: of the library.
    """
    probe = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
    try:
        handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.write(handle, bytes(PROBE_BYTES))
            os.fsync(handle)
        finally:
            os.close(handle)
            _discard(probe)
    except OSError as error:
        return error
    return OSError(errno.EIO, message)


def advice(error: OSError) -> str:
    """Return the remedy for an error of the operating system."""
    kept = "nothing that was committed before is lost"
    if error.errno in NO_PATH:
        return f"{kept}: give another path, or fix this one"
    if error.errno in NO_SPACE:
        return f"{kept}: free some space there, then run again"
    if error.errno in NO_PERMISSION:
        return f"{kept}: give this user the right to read and write there, or choose another --root"
    return f"{kept}: fix the disk, then run again"


def _write_temporary(target: Path, content: bytes) -> Path:
    _make_folder(target.parent)
    temporary = target.parent / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
    except OSError:
        _discard(temporary)
        raise
    finally:
        os.close(handle)
    return temporary


def _link_or_replace(temporary: Path, target: Path) -> bool:
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        temporary.replace(target)
    return True


def _discard(temporary: Path) -> None:
    try:
        temporary.unlink()
    except OSError:
        return  # `gc` removes it later


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
