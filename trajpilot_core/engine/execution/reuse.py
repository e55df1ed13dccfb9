"""What a later attempt can use: scratch, from which it resumes, and committed shards.

Results are never in scratch. Paths do not enter a shard's key, since a moved corpus is the same corpus. But reject rows
name files: the shard of a renamed take is reused only if none of its rejects names an old path.
"""

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

from schemas.artifacts import ShardRecord
from schemas.base import fingerprint
from schemas.config import RunOptions
from trajpilot_core.engine.key import KeyedStage, spelled
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder, naming_failures
from trajpilot_core.store.manifest import (
    missing_files,
    read_sealed,
    shard_path,
    stage_folder,
    unless_damaged,
    verified_bytes,
)
from trajpilot_core.store.parquet import read_table

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
    """
    folder = scratch_folder(run, name)
    handle = _lease(folder)
    if handle is not None:
        with handle:
            yield folder
        return
    log.info("%s is in use by another process; starting again next to it", folder)
    scratch = scratch_folder(run, f"{name}-{secrets.token_hex(8)}")
    with naming_failures("make the scratch folder", scratch):
        scratch.mkdir(parents=True)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


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


def finished_shards(work: KeyedStage, folder: Folder) -> dict[str, ShardRecord]:
    """Return the committed shards of a stage, by name, without those whose rejects name a file that the take lacks."""
    done = {}
    stage = work.resolved.stage.name
    for source in work.resolved.sources:
        path = shard_path(stage, work.shard_keys[source.shard])
        record = unless_damaged(read_sealed, folder, ShardRecord, path)
        if record is None or missing_files(folder, stage, record):
            continue
        if _files_named(folder, record) <= {spelled(path) for path in source.files}:
            done[source.shard] = record
    return done


def _files_named(folder: Folder, record: ShardRecord) -> set[str]:
    """Return the files that the rejects of a shard name; {""}, which matches no file, where the table is damaged."""
    base = stage_folder(record.stage)
    try:
        tables = [read_table(verified_bytes(folder, base, file), ["source_file"]) for file in record.rejects.files]
    except StoreError:
        return {""}
    return {spelled(path) for table in tables for path in table["source_file"].to_pylist() if path is not None}
