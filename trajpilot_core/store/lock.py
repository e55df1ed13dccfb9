"""Locks (one run per root, one per stage, `gc` alone) and the check of free disk space. Commits are atomic anyway."""

import contextlib
import datetime
import fcntl
import logging
import os
import platform
import shutil
import time
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import naming_failures
from trajpilot_core.store.locations import ALLOWED_PROTOCOLS, parse_location

log = logging.getLogger("trajpilot")
POLL_S = 0.2
LOCK = ".lock"
LOG_EVERY_S = 600.0
"""How often a waiting process logs that it waits."""
GC_WAIT_S = 600.0
"""How long a stage waits while `gc` runs."""
IN_USE = ".in-use"
"""Locked shared by every running stage of a root, in whichever worker; `gc` locks it exclusively."""


@contextlib.contextmanager
def root_lock(root: str, wait_s: float) -> Iterator[None]:
    """Lock the root for one run; a second run waits, and fails with the name of the first. Object stores: no lock.

    Args:
        root: folder that everything is written to.
        wait_s: how long to wait for another run, seconds; 0: not at all.

    Raises:
        StoreError: another run still has the lock.
    """
    folder = _local_folder(root)
    if folder is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        with naming_failures("lock", folder / LOCK):
            handle = stack.enter_context(_opened(folder, LOCK))
            end_s = time.monotonic() + wait_s
            while not _is_locked(handle, fcntl.LOCK_EX):
                if time.monotonic() >= end_s:
                    raise StoreError(
                        f"{folder} is in use by {_holder(handle)}; waited {wait_s:.0f} s; wait for it, end it, or use "
                        "another --root"
                    )
                time.sleep(POLL_S)
            _sign(handle)
        try:
            yield
        finally:
            _write_holder(handle, b"")
            fcntl.flock(handle, fcntl.LOCK_UN)


@contextlib.contextmanager
def stage_lock(root: str, stage: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> Iterator[None]:
    """Lock one stage of a root; a second run of it waits as long as it takes, and logs for whom.

    The lock is released when the process exits, even on a crash. Without a lock (read-only folder, object store) the
    stage runs all the same: commits are atomic.

    Args:
        root: folder that the stage writes to.
        stage: its name.
        allowed: protocols that may be opened.
    """
    folder = _local_folder(root, allowed)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            with contextlib.suppress(OSError):
                handle = stack.enter_context(_opened(folder, f".lock-{stage}"))
                logged_s: float | None = None
                while not _is_locked(handle, fcntl.LOCK_EX):
                    if logged_s is None or time.monotonic() - logged_s >= LOG_EVERY_S:
                        logged_s, holder = time.monotonic(), _holder(handle)
                        log.info("%-13s waiting: %s is computing it; what it finishes is reused", stage, holder)
                    time.sleep(POLL_S)
                _sign(handle)
        yield


@contextlib.contextmanager
def in_use(root: str, wait_s: float, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> Iterator[None]:
    """Keep `gc` out while a stage runs; any number of stages may run. Without a lock (see `stage_lock`) they run too.

    Args:
        root: folder that the stage writes to.
        wait_s: how long to wait while `gc` runs, seconds.
        allowed: protocols that may be opened.

    Raises:
        StoreError: `gc` is still running.
    """
    folder = _local_folder(root, allowed)
    with contextlib.ExitStack() as stack:
        if folder is not None:
            with contextlib.suppress(OSError):
                _share(stack.enter_context(_opened(folder, IN_USE)), folder, wait_s)
        yield


def _share(handle: FileIO, folder: Path, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while not _is_locked(handle, fcntl.LOCK_SH):
        if time.monotonic() >= end_s:
            raise StoreError(f"`gc` is running under {folder}; waited {wait_s:.0f} s; run again when it has ended")
        time.sleep(POLL_S)


@contextlib.contextmanager
def alone(root: str) -> Iterator[None]:
    """Lock a local root against every run and every stage, or fail at once.

    Raises:
        StoreError: a run or a stage is active there, or the root cannot be locked.
    """
    folder = _local_folder(root)
    if folder is None:
        raise StoreError(f"{root} cannot be locked: it is not a folder of this machine; use a rule of the store itself")
    with root_lock(root, 0.0), contextlib.ExitStack() as stack:
        with naming_failures("lock", folder / IN_USE):
            handle = stack.enter_context(_opened(folder, IN_USE))
        try:
            if not _is_locked(handle, fcntl.LOCK_EX):
                raise StoreError(f"a stage is running under {folder}; wait until it has ended")
        except OSError as error:
            raise StoreError(f"{folder} cannot be locked ({error.strerror}); nothing is removed there") from error
        yield


def _local_folder(root: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> Path | None:
    location = parse_location(root, allowed)
    return Path(location.path) if location.protocol == "file" else None


def _opened(folder: Path, name: str) -> FileIO:
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / name).open("ab+", buffering=0)


def _is_locked(handle: FileIO, mode: int) -> bool:
    """Lock a file without waiting; return whether that worked."""
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(handle: FileIO) -> str:
    """Return who holds a lock; its name is missing between locking and signing, and on a full disk."""
    handle.seek(0)
    return handle.read().decode(errors="replace").strip() or "another process"


def _sign(handle: FileIO) -> None:
    """Write who holds a lock, for waiting processes."""
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    _write_holder(handle, f"process {os.getpid()} on {platform.node()}, started {started}\n".encode())


def _write_holder(handle: FileIO, text: bytes) -> None:
    with contextlib.suppress(OSError):  # on a full disk the lock works without a name
        handle.truncate(0)
        handle.write(text)


def existing_folder(path: Path) -> Path:
    """Return a folder, or the nearest above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def require_free_space(
    path: Path, bytes_needed: int, what: str, remedy: str = "free some space or choose another --root"
) -> None:
    """Check that the disk has room before long work starts.

    Args:
        path: where the work writes; it need not exist yet.
        bytes_needed: estimate.
        what: the work, for the message.
        remedy: what to do, for the message.

    Raises:
        StoreError: too little is free.
    """
    free = shutil.disk_usage(existing_folder(path)).free
    if free < bytes_needed:
        raise StoreError(
            f"{what} needs {bytes_needed / 1e9:.2f} GB under {path}, but only {free / 1e9:.2f} GB is free there; "
            f"{remedy}"
        )
