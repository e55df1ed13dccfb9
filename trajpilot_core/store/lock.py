"""Locks (one run per root, one per stage, `gc` alone) and the check of free disk space. Commits are atomic anyway.

A lock ends with its process, even on a crash. Object stores have none. A stage also runs where it cannot lock, such as
in a read-only folder.
"""

import contextlib
import datetime
import fcntl
import logging
import math
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from io import FileIO
from pathlib import Path

from trajpilot_core.errors import StoreError, StoreIOError
from trajpilot_core.store.files import naming_failures
from trajpilot_core.store.locations import parse_location

log = logging.getLogger("trajpilot")
POLL_S = 0.2
GC_WAIT_S = 600.0
"""How long a stage waits while `gc` runs."""
IN_USE = ".in-use"
"""Locked shared by every running stage of a root, in whichever worker; `gc` locks it exclusively."""


def root_lock(root: str, wait_s: float) -> AbstractContextManager[None]:
    """Lock the root for one run; a second run waits so many seconds, then fails with the name of the first.

    Raises:
        StoreError: another run still has the lock, or the root cannot be locked.
    """
    busy = f"{root} is in use by HOLDER; wait for it, end it, or use another --root"
    return _locked(root, ".lock", fcntl.LOCK_EX, wait_s, busy, is_required=True)


def stage_lock(root: str, stage: str) -> AbstractContextManager[None]:
    """Lock one stage of a root; a second run of it waits as long as it takes, and logs for whom."""
    busy = f"HOLDER is computing {stage}; what it finishes is reused"
    return _locked(root, f".lock-{stage}", fcntl.LOCK_EX, math.inf, busy)


def in_use(root: str, wait_s: float) -> AbstractContextManager[None]:
    """Keep `gc` out while a stage runs; any number of stages may run.

    Raises:
        StoreError: `gc` is still running after so many seconds.
    """
    return _locked(root, IN_USE, fcntl.LOCK_SH, wait_s, f"`gc` is running under {root}; run again when it has ended")


@contextlib.contextmanager
def alone(root: str) -> Iterator[None]:
    """Lock a local root against every run and every stage, or fail at once.

    Raises:
        StoreError: a run or a stage is active there, or the root cannot be locked.
    """
    if parse_location(root).protocol != "file":
        raise StoreError(f"{root} cannot be locked: it is not a folder of this machine; use a rule of the store itself")
    busy = f"a stage is running under {root}; wait until it has ended"
    with root_lock(root, 0.0), _locked(root, IN_USE, fcntl.LOCK_EX, 0.0, busy, is_required=True):
        yield


@contextlib.contextmanager
def _locked(root: str, name: str, mode: int, wait_s: float, busy: str, *, is_required: bool = False) -> Iterator[None]:
    """Lock a file of a local root while the block runs; `mode` is that of `fcntl.flock`.

    `busy` is logged before waiting and raised after it, HOLDER replaced. A folder that cannot be locked is an error
    only if the lock `is_required`.
    """
    location = parse_location(root)
    with contextlib.ExitStack() as stack:
        if location.protocol == "file":
            path = Path(location.path, name)
            try:
                with naming_failures("lock", path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _wait(stack.enter_context(path.open("ab+", buffering=0)), mode, wait_s, busy)
            except StoreIOError:
                if is_required:
                    raise
        yield


def _wait(handle: FileIO, mode: int, wait_s: float, busy: str) -> None:
    end_s, has_logged = time.monotonic() + wait_s, False
    while True:
        try:
            fcntl.flock(handle, mode | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            handle.seek(0)  # its name is missing between locking and signing, and on a full disk
            holder = handle.read().decode(errors="replace").strip() or "another process"
        message = busy.replace("HOLDER", holder)
        if time.monotonic() >= end_s:
            raise StoreError(message)
        if not has_logged:
            log.info("waiting: %s", message)
            has_logged = True
        time.sleep(POLL_S)
    if mode == fcntl.LOCK_SH:
        return
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    with contextlib.suppress(OSError):
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {platform.node()}, started {started}\n".encode())


def existing_folder(path: Path) -> Path:
    """Return a folder, or the nearest above it that exists."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def require_free_space(
    path: Path, bytes_needed: int, what: str, remedy: str = "free some space or choose another --root"
) -> None:
    """Check that the disk of a path, which need not exist yet, has room before long work starts.

    Raises:
        StoreError: too little is free.
    """
    free = shutil.disk_usage(existing_folder(path)).free
    if free < bytes_needed:
        raise StoreError(
            f"{what} needs {bytes_needed / 1e9:.2f} GB under {path}, but only {free / 1e9:.2f} GB is free there; "
            f"{remedy}"
        )
