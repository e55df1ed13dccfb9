"""One run per root, one per stage, nothing next to `gc`, and room on the disk. Commits are atomic, locked or not."""

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
from typing import IO

from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import naming_failures
from trajpilot_core.store.locations import ALLOWED_PROTOCOLS, parse_location

log = logging.getLogger("trajpilot")
POLL_S = 0.2
LOCK = ".lock"
TELL_EVERY_S = 600.0
"""How often a waiting process reports that it waits."""
SIGN_S = 2.0
"""How long the holder of a lock may take to write down who it is before a waiting process calls it unknown."""
GC_WAIT_S = 600.0
"""How long a stage waits for a `gc` at work."""
IN_USE = ".in-use"
"""Shared by every stage at work below a root, by whatever worker; `gc` holds it alone."""


@contextlib.contextmanager
def root_lock(root: str, wait_s: float) -> Iterator[None]:
    """Hold the root for one run; a second run waits, or learns who holds it. On an object store nothing is locked.

    Args:
        root: folder that everything is written to.
        wait_s: how long to wait for another run, seconds; 0: not at all.

    Raises:
        StoreError: another run still holds the root.
    """
    location = parse_location(root)
    if location.protocol != "file":
        yield
        return
    folder = Path(location.path)
    with contextlib.ExitStack() as stack:
        with naming_failures("lock", folder / LOCK):
            folder.mkdir(parents=True, exist_ok=True)
            handle = stack.enter_context((folder / LOCK).open("ab+", buffering=0))
            _acquire(handle, folder, wait_s)
        try:
            yield
        finally:
            _note(handle, b"")
            fcntl.flock(handle, fcntl.LOCK_UN)


def _acquire(handle: FileIO, folder: Path, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            holder = _holder(handle)
            if time.monotonic() >= end_s + (0.0 if holder else SIGN_S):
                raise StoreError(
                    f"{folder} is in use by {holder or 'an unknown process'}; waited {wait_s:.0f} s; wait for it, end "
                    "it, or use another --root"
                ) from error
            time.sleep(min(POLL_S, end_s - time.monotonic()) if time.monotonic() < end_s else POLL_S)
    _sign(handle)


def _holder(handle: FileIO) -> str:
    """Return who holds a lock; empty in the moment between taking it and signing, or between wiping and leaving."""
    handle.seek(0)
    return handle.read().decode(errors="replace").strip()


def _sign(handle: FileIO) -> None:
    """Write down who holds a lock, for those who wait."""
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    _note(handle, f"process {os.getpid()} on {platform.node()}, started {started}\n".encode())


def _note(handle: FileIO, text: bytes) -> None:
    """Write who holds the lock; a full disk does not matter here, the lock is held without it."""
    with contextlib.suppress(OSError):
        handle.truncate(0)
        handle.write(text)


@contextlib.contextmanager
def stage_lock(root: str, stage: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> Iterator[None]:
    """Hold one stage of a root; a second run of it waits as long as it takes, and says for whom.

    The lock goes with its holder, however he ends. Where none can be had (a folder that may not be written, an object
    store), nothing is locked: commits are atomic all the same.

    Args:
        root: folder that the stage writes to.
        stage: its name.
        allowed: protocols that may be opened.
    """
    location = parse_location(root, allowed)
    with contextlib.ExitStack() as stack:
        if location.protocol == "file":
            with contextlib.suppress(OSError):
                Path(location.path).mkdir(parents=True, exist_ok=True)
                handle = stack.enter_context((Path(location.path) / f".lock-{stage}").open("ab+", buffering=0))
                _wait(handle, stage)
                _sign(handle)
        yield


def _wait(handle: FileIO, stage: str) -> None:
    told_s: float | None = None
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if told_s is None or time.monotonic() - told_s >= TELL_EVERY_S:
                told_s = time.monotonic()
                holder = _holder(handle) or "another process"
                log.info("%-13s waiting: %s computes it; what it finishes is reused", stage, holder)
            time.sleep(POLL_S)
        else:
            return


@contextlib.contextmanager
def in_use(root: str, wait_s: float, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> Iterator[None]:
    """Keep `gc` away while a stage works; any number of stages may work at a time.

    Where no lock can be had (a folder that may not be written, an object store), nothing is locked.

    Args:
        root: folder that the stage writes to.
        wait_s: how long to wait for a `gc` at work, seconds.
        allowed: protocols that may be opened.

    Raises:
        StoreError: a `gc` is still at work.
    """
    location = parse_location(root, allowed)
    with contextlib.ExitStack() as stack:
        if location.protocol == "file":
            folder = Path(location.path)
            with contextlib.suppress(OSError):
                folder.mkdir(parents=True, exist_ok=True)
                _share(stack.enter_context((folder / IN_USE).open("a")), folder, wait_s)
        yield


def _share(handle: IO[str], folder: Path, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return
        except BlockingIOError as error:
            if time.monotonic() >= end_s:
                raise StoreError(f"`gc` is at work under {folder}; waited {wait_s:.0f} s; wait for it") from error
            time.sleep(min(POLL_S, max(0.0, end_s - time.monotonic())))


@contextlib.contextmanager
def alone(root: str) -> Iterator[None]:
    """Hold a local root against every run and every stage, or refuse at once.

    Raises:
        StoreError: a run or a stage is at work there, or the root lies where nothing can be locked.
    """
    location = parse_location(root)
    if location.protocol != "file":
        raise StoreError(f"{root} cannot be locked: it is no folder of this machine; use a rule of the store itself")
    folder = Path(location.path)
    with root_lock(root, 0.0), contextlib.ExitStack() as stack:
        with naming_failures("lock", folder / IN_USE):
            handle = stack.enter_context((folder / IN_USE).open("a"))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StoreError(f"a stage is at work under {folder}; wait until it is done") from error
        except OSError as error:
            raise StoreError(f"{folder} cannot be locked ({error.strerror}); nothing is removed there") from error
        yield


def existing_folder(path: Path) -> Path:
    """Return a folder, or the nearest above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def require_free_space(
    path: Path, bytes_needed: int, what: str, remedy: str = "free some space or choose another --root"
) -> None:
    """Check that there is room before a long piece of work starts.

    Args:
        path: where the work writes; it need not exist yet.
        bytes_needed: estimate.
        what: what it is for, as the message says it.
        remedy: what to do, as the message says it.

    Raises:
        StoreError: too little is free.
    """
    free = shutil.disk_usage(existing_folder(path)).free
    if free < bytes_needed:
        raise StoreError(
            f"{what} needs {bytes_needed / 1e9:.2f} GB under {path}, but only {free / 1e9:.2f} GB is free there; "
            f"{remedy}"
        )
