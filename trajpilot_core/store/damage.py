"""Damage below a root, found by reading and hashing; dropped on request, so that a run recomputes it."""

from collections.abc import Iterator
from dataclasses import dataclass

from schemas.artifacts import FileEntry, Manifest, RunRecord, ShardRecord, SourceNotes
from schemas.base import Record
from trajpilot_core.errors import StoreError, StoreIOError, VersionError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import (
    CURRENT,
    RUN_RECORD,
    SHARDS,
    SOURCES,
    current_manifest,
    files_of,
    manifest_path,
    read_sealed,
    shard_path,
    stage_folder,
    verified_bytes,
)
from trajpilot_core.store.reading import keys_of, stages_of


@dataclass(frozen=True)
class Damage:
    """A file that is missing or damaged, or could not be read."""

    path: str
    """Relative to the root."""
    problem: str
    records: tuple[str, ...]
    """Manifests and records that need the file, or the file itself where it is one: what `repair` removes."""
    is_sure: bool
    """Wrong bytes or none; False where it could not be read or another version wrote it: nothing is removed."""


def verify(root: str, *, repair: bool) -> list[Damage]:
    """Compare the digests of every manifest, shard record and data file below a root; the order is fixed.

    `repair` removes manifests and records that are damaged or need a damaged file; the next run recomputes them.
    Unreadable files stay: the disk or the object store may recover.
    """
    folder = open_folder(root)
    damages = [damage for stage in stages_of(folder) for damage in _verify_stage(folder, stage)]
    if repair:
        for path in sorted({path for damage in damages if damage.is_sure for path in damage.records}):
            folder.remove(path)
    return damages


def _verify_stage(folder: Folder, stage: str) -> Iterator[Damage]:
    needed: dict[str, tuple[FileEntry, list[str]]] = {}
    for kind, path in _records(folder, stage):
        try:
            record = read_sealed(folder, kind, path)
        except StoreError as error:
            yield Damage(path, str(error), (path,), _is_sure(error))
            continue
        for file in files_of(record) if isinstance(record, Manifest | ShardRecord) else ():
            needed.setdefault(file.name, (file, []))[1].append(path)
    for file, records in needed.values():
        path = f"{stage_folder(stage)}/{file.name}"
        try:
            if folder.size(path) is None:
                yield Damage(path, "missing", tuple(records), is_sure=True)
            else:
                verified_bytes(folder, stage_folder(stage), file)
        except StoreError as error:
            yield Damage(path, str(error), tuple(records), _is_sure(error))
    try:
        current_manifest(folder, stage)
    except StoreError as error:
        path = f"{stage_folder(stage)}/{CURRENT}"
        yield Damage(path, str(error), (path,), _is_sure(error))


def _records(folder: Folder, stage: str) -> Iterator[tuple[type[Record], str]]:
    for key in folder.names(f"{stage_folder(stage)}/{SHARDS}"):
        yield ShardRecord, shard_path(stage, key)
    for key in keys_of(folder, stage):
        yield Manifest, manifest_path(stage, key)
        yield RunRecord, f"{stage_folder(stage)}/{key}/{RUN_RECORD}"
        yield SourceNotes, f"{stage_folder(stage)}/{key}/{SOURCES}"


def _is_sure(error: StoreError) -> bool:
    return not isinstance(error, StoreIOError | VersionError)
