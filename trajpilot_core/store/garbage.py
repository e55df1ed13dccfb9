"""Below a root: files that no manifest in use names, removed on request, and damage, found by reading and hashing.

In use are the current output of every stage and all outputs that it was made from, with their shards and packs. A stage
whose pointer or manifest is damaged is left alone, with all that any of its outputs was made from. Damage is dropped on
request, so that a run recomputes it.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from schemas.artifacts import FileEntry, Manifest, RunRecord, ShardRecord, SourceNotes
from schemas.base import Record
from trajpilot_core.errors import StoreError, StoreIOError, VersionError
from trajpilot_core.store.files import TEMPORARY, Folder, LocalFolder, naming_failures, open_folder
from trajpilot_core.store.locations import NAME
from trajpilot_core.store.lock import alone
from trajpilot_core.store.manifest import (
    ARTIFACTS,
    CURRENT,
    MANIFEST,
    RECORD,
    RUN_RECORD,
    SHARDS,
    SOURCES,
    current_manifest,
    files_of,
    manifest_path,
    read_sealed,
    shard_path,
    stage_folder,
    unless_damaged,
    verified_bytes,
)
from trajpilot_core.store.reading import keys_of, known_pack, manifests_of, pack_label, stages_of

SCRATCH = "scratch"
WRITTEN = re.compile(
    rf"[^/]+/(?:{SHARDS}/)?[^/]+/(?:{MANIFEST}|{RECORD}|{RUN_RECORD}|{SOURCES}"
    r"|data-[0-9a-f]{64}\.[A-Za-z0-9_.-]+|[0-9a-f]{64}\.json)"
)
"""Files that the store writes below the artifacts."""
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class GarbageGroup:
    """Files that go together, because half an output is worse than none."""

    name: str
    """Stage, or the path of a scratch folder or of a temporary file."""
    files: tuple[str, ...]
    """Relative to the root; manifests and records first, so that an interrupted removal leaves no broken output."""
    bytes: int
    written_s: float
    """When the youngest of its files was written, seconds since 1970."""


@dataclass(frozen=True)
class Garbage:
    """What a walk over a root found, sorted by name."""

    groups: tuple[GarbageGroup, ...]
    """What `gc` removes."""
    young: tuple[GarbageGroup, ...]
    """Kept because it is too young."""
    left: tuple[str, ...]
    """Files that the store did not write: never touched."""
    damaged: tuple[str, ...]
    """Stages whose output cannot be read, with the reason: never touched."""


def find_garbage(root: str, min_age_h: float) -> Garbage:
    """List what no manifest in use names; nothing is changed.

    Args:
        root: a folder of this machine.
        min_age_h: younger groups are kept, hours: a crashed run resumes from its finished shards and checkpoints.

    Raises:
        StoreError: the root is an object store.
    """
    folder = open_folder(root)
    if not isinstance(folder, LocalFolder):
        raise StoreError(f"{root} is not a folder of this machine; use a lifecycle rule of the store, or copy it here")
    place, (used, damaged) = Path(folder.url), paths_in_use(folder)
    unused: dict[str, list[tuple[bool, str, os.stat_result]]] = {}
    left: list[str] = []
    for group, file in _files(folder, set(damaged)):
        path, is_temporary = str(file.relative_to(place)), file.name.startswith(TEMPORARY)
        if not is_temporary and (path in used or path.rpartition("/")[0] in used):
            continue
        artifact = path.removeprefix(f"{ARTIFACTS}/")
        if file.is_symlink() or not (is_temporary or artifact == path or WRITTEN.fullmatch(artifact)):
            left.append(path)
            continue
        with contextlib.suppress(FileNotFoundError):  # a stage is running
            unused.setdefault(group, []).append((file.name not in (MANIFEST, RECORD), path, file.lstat()))
    groups = [
        GarbageGroup(
            name,
            tuple(path for _, path, _ in files),
            sum(s.st_size for *_, s in files),
            max(s.st_mtime for *_, s in files),
        )
        for name, files in ((name, sorted(files, key=lambda file: file[:2])) for name, files in sorted(unused.items()))
    ]
    limit_s = time.time() - 3600 * min_age_h
    old, young = (
        tuple(group for group in groups if (group.written_s <= limit_s) == is_old) for is_old in (True, False)
    )
    return Garbage(old, young, tuple(sorted(left)), tuple(f"{stage}: {why}" for stage, why in sorted(damaged.items())))


def remove_garbage(root: str, min_age_h: float) -> Garbage:
    """Remove what `find_garbage` finds, while no run and no stage is active; return what was removed.

    Raises:
        StoreError: a run or a stage is active below the root, or the root is no folder of this machine.
    """
    with alone(root):
        garbage, place = find_garbage(root, min_age_h), Path(open_folder(root).url)
        for path in (place / name for group in garbage.groups for name in group.files):
            with naming_failures("remove", path):
                path.unlink(missing_ok=True)
            for parent in path.relative_to(place).parents[:-2]:
                with contextlib.suppress(OSError):  # it is not empty
                    (place / parent).rmdir()
        for empty in sorted((place / SCRATCH).glob("**/"), reverse=True)[:-1]:  # of computations that wrote nothing
            with contextlib.suppress(OSError):
                empty.rmdir()
    return garbage


def paths_in_use(folder: LocalFolder) -> tuple[set[str], dict[str, str]]:
    """Return the files, and folders as a whole, that outputs in use need; and damaged stage -> reason."""
    used, damaged = set[str](), dict[str, str]()
    outputs = {stage: list(manifests_of(folder, stage)) for stage in stages_of(folder)}
    waiting: list[Manifest] = []
    for stage in outputs:
        try:
            current = current_manifest(folder, stage)
            used.add(f"{stage_folder(stage)}/{CURRENT}")
            waiting += [] if current is None else [current]
        except StoreError as error:
            damaged[stage] = str(error)
            waiting += outputs[stage]
    seen = set()
    while waiting:
        manifest = waiting.pop()
        if (manifest.stage, manifest.key) in seen:
            continue
        seen.add((manifest.stage, manifest.key))
        used |= _paths_of(folder, manifest)
        for entry, fingerprint in manifest.inputs.items():
            for earlier in outputs.values():  # the first that contains it: the current one, else the latest
                holders = (m for m in earlier if entry in m.entries and m.entries[entry].fingerprint == fingerprint)
                waiting += [holder for holder in (next(holders, None),) if holder is not None]
    return used, damaged


def _paths_of(folder: LocalFolder, manifest: Manifest) -> set[str]:
    base = stage_folder(manifest.stage)
    paths = {f"{base}/{manifest.key}/{name}" for name in (MANIFEST, RUN_RECORD, SOURCES)}
    paths |= {f"{base}/{file.name}" for file in files_of(manifest)}
    paths |= {f"{base}/{SHARDS}/{key}" for name, key in manifest.inputs.items() if name.startswith("shard:")}
    for entry in manifest.entries.values():
        packed = unless_damaged(known_pack, folder, manifest.stage, entry)  # a damaged label: the pack is made again
        if packed is not None:
            paths |= {pack_label(manifest.stage, entry), f"{base}/{packed.name}"}
    return paths


def _files(folder: LocalFolder, damaged: set[str]) -> Iterator[tuple[str, Path]]:
    """Yield (name of the group, path) of every file that may be garbage; links to folders are not followed."""
    root = Path(folder.url)
    places = [(stage, root / stage_folder(stage)) for stage in stages_of(folder) if stage not in damaged]
    places += [
        (f"{SCRATCH}/{folder.name}", folder) for folder in (root / SCRATCH).glob("*/") if not folder.is_symlink()
    ]
    for name, place in places:
        yield from ((name, path) for path in place.rglob("*") if path.is_symlink() or not path.is_dir())
    for path in (*root.glob(f"{TEMPORARY}*"), *root.glob(f"reports/{TEMPORARY}*")):
        yield str(path.relative_to(root)), path


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
    damages = [damage for stage in stages_of(folder) for damage in _verify_stage(folder, stage)]
    if repair:
        for damage in damages:
            if damage.is_sure:
                folder.remove(damage.path)
    return damages


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
