"""Scratch: folders with files from which a later attempt can resume. Results are never there."""

import fcntl
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from schemas.base import fingerprint
from schemas.config import RunOptions
from trajpilot_core.store.files import naming_failures

log = logging.getLogger("trajpilot")
LEASE = ".lease"


def scratch_folder(run: RunOptions, name: str) -> Path:
    """Return the private folder of a computation: below the root, or in the temporary folder where that is remote."""
    if "://" in run.root and not run.root.startswith("file:"):
        return Path(tempfile.gettempdir()) / f"trajpilot-{fingerprint(run.root)[:16]}" / name
    return Path(run.root.removeprefix("file://")).absolute() / "scratch" / name


@contextmanager
def leased(run: RunOptions, name: str) -> Iterator[Path]:
    """Lock a scratch folder, which may contain files of a killed computation of the same name.

    Where another process has locked it, the computation starts again in a new folder, which is removed at the end. The
    lock is released when the process exits, even on a crash.

    Args:
        run: location of the root.
        name: of the folder.
    """
    folder = scratch_folder(run, name)
    handle = _lease(folder)
    if handle is not None:
        with handle:
            yield folder
        return
    log.info("%s is in use by another process; starting again next to it", folder)
    own = scratch_folder(run, f"{name}-{secrets.token_hex(8)}")
    with naming_failures("make the scratch folder", own):
        own.mkdir(parents=True)
    try:
        yield own
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _lease(folder: Path) -> FileIO | None:
    """Lock a folder; None where another process has locked it. On a file system without locks nothing is locked."""
    while True:
        with naming_failures("make the scratch folder", folder):
            folder.mkdir(parents=True, exist_ok=True)
            handle = (folder / LEASE).open("ab+", buffering=0)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            return None
        except OSError:
            return handle
        with suppress(FileNotFoundError):  # its previous holder may have removed the folder in between
            if os.path.samestat(os.fstat(handle.fileno()), (folder / LEASE).stat()):
                return handle
        handle.close()
