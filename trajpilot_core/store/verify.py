"""Read and hash everything below a root, list damage, and drop it on request so that a run recomputes it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from schemas.artifacts import FileEntry, Manifest, RunRecord, ShardRecord, SourceNotes
from schemas.base import Record
from trajpilot_core.errors import StoreError, StoreIOError, VersionError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.history import keys_of, stages_of
from trajpilot_core.store.locations import NAME
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

R = TypeVar("R", bound=Record)
CheckedFiles = dict[str, tuple[str, bool] | None]
"""Data file -> problem, and whether it is certain; None: no problem."""


@dataclass(frozen=True)
class Damage:
    """A file that is missing or damaged."""

    path: str
    """The manifest, record or side file that is damaged or needs a damaged file, relative to the root."""
    problem: str
    files: tuple[str, ...] = ()
    """Data files that are damaged or missing, relative to the root; empty where `path` itself is damaged."""
    is_sure: bool = True
    """Wrong bytes or none; False where it could not be read or another version wrote it: never dropped."""


def verify(root: str, *, repair: bool) -> list[Damage]:
    """Read every manifest, shard record and data file below a root and compare digests.

    Args:
        root: the root of a run.
        repair: remove manifests and records that are damaged or need a damaged file; the next run recomputes them.
            Unreadable files stay: the disk may recover.

    Returns:
        The damage, in a fixed order. Packs are not checked: they are rebuilt anyway.
    """
    folder = open_folder(root)
    found = [damage for stage in stages_of(folder) for damage in _verify_stage(folder, stage)]
    if repair:
        for damage in found:
            if damage.is_sure:
                folder.remove(damage.path)
    return found


def _verify_stage(folder: Folder, stage: str) -> Iterator[Damage]:
    seen: CheckedFiles = {}
    for key in [name for name in folder.names(f"{stage_folder(stage)}/{SHARDS}") if NAME.fullmatch(name)]:
        yield from _verify_record(folder, stage, ShardRecord, shard_path(stage, key), seen)
    for key in keys_of(folder, stage):
        yield from _verify_record(folder, stage, Manifest, manifest_path(stage, key), seen)
        for kind, name in ((RunRecord, RUN_RECORD), (SourceNotes, SOURCES)):
            yield from _verify_record(folder, stage, kind, f"{stage_folder(stage)}/{key}/{name}", seen)
    try:
        current_manifest(folder, stage)
    except StoreError as error:
        yield Damage(f"{stage_folder(stage)}/{CURRENT}", str(error), is_sure=_is_sure(error))


def _is_sure(error: StoreError) -> bool:
    return not isinstance(error, StoreIOError | VersionError)


def _verify_record(folder: Folder, stage: str, kind: type[R], path: str, seen: CheckedFiles) -> Iterator[Damage]:
    try:
        record = read_sealed(folder, kind, path)
    except StoreError as error:
        yield Damage(path, str(error), is_sure=_is_sure(error))
        return
    if isinstance(record, Manifest | ShardRecord):
        problems = {file.name: _problem(folder, stage, file, seen) for file in files_of(record)}
        bad = {name: problem for name, problem in problems.items() if problem is not None}
        if bad:
            files = tuple(f"{stage_folder(stage)}/{name}" for name in bad)
            sure = any(is_sure for _, is_sure in bad.values())
            yield Damage(path, "; ".join(text for text, _ in bad.values()), files, is_sure=sure)


def _problem(folder: Folder, stage: str, file: FileEntry, seen: CheckedFiles) -> tuple[str, bool] | None:
    path = f"{stage_folder(stage)}/{file.name}"
    if file.name not in seen:
        try:
            verified_bytes(folder, stage_folder(stage), file)
            seen[file.name] = None
        except StoreError as error:
            seen[file.name] = str(error), _is_sure(error) or _is_gone(folder, path)
    return seen[file.name]


def _is_gone(folder: Folder, path: str) -> bool:
    try:
        return folder.size(path) is None
    except StoreIOError:
        return False
