"""What nothing refers to any more: found by a walk over the artifacts, removed on request, never anything referenced.

Referenced is the output of every stage that counts, everything that such an output was made from, and their shards and
packs. A stage whose pointer or manifest is damaged is left alone as a whole, with all that any of its outputs was made
from: what it needs is unknown.
"""

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from schemas.artifacts import Manifest
from trajpilot_core.errors import StoreError, StoreIOError
from trajpilot_core.store.files import TEMPORARY, LocalFolder, open_folder
from trajpilot_core.store.history import manifests_of, stages_of
from trajpilot_core.store.lock import alone
from trajpilot_core.store.manifest import (
    ARTIFACTS,
    CURRENT,
    MANIFEST,
    PACKS,
    RECORD,
    RUN_RECORD,
    SHARDS,
    SOURCES,
    current_manifest,
    files_of,
    stage_folder,
)
from trajpilot_core.store.packs import known_pack, pack_label

GarbageKind = Literal["temporary", "output", "unfinished", "shard", "pack", "stray", "scratch"]
SCRATCH = "scratch"
MARKERS = (MANIFEST, RECORD)
"""Removed first: a folder without its marker does not exist, so an interrupted removal leaves nothing incomplete."""
DATA = re.compile(r"data-[0-9a-f]{64}\.[A-Za-z0-9_.-]+")
LABEL = re.compile(r"[0-9a-f]{64}\.json")
OURS = {MANIFEST, RECORD, RUN_RECORD, SOURCES}


@dataclass(frozen=True)
class GarbageItem:
    """A folder or a file that nothing refers to."""

    kind: GarbageKind
    stage: str
    path: str
    """Relative to the root."""
    files: tuple[str, ...]
    """Relative to the root, those first that make the others exist."""
    bytes: int
    written_s: float
    """When the youngest of its files was written, seconds since 1970."""


@dataclass(frozen=True)
class Garbage:
    """What a walk over a root found."""

    items: tuple[GarbageItem, ...]
    """What `gc` removes, sorted by path."""
    young: tuple[GarbageItem, ...]
    """What it keeps because it is too young."""
    left: tuple[str, ...]
    """Files that are none of the store's: never touched."""
    damaged: tuple[str, ...]
    """Stages whose output cannot be read, with the reason: never touched."""


@dataclass
class Referenced:
    """Paths that are needed, relative to the root."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    """Needed as a whole."""


def find_garbage(root: str, min_age_h: float) -> Garbage:
    """Look for what nothing refers to; nothing is changed.

    Args:
        root: a folder of this machine.
        min_age_h: younger things are kept, hours: a crashed run goes on with its finished shards and checkpoints.

    Raises:
        StoreError: the root is an object store.
    """
    folder = open_folder(root)
    if not isinstance(folder, LocalFolder):
        raise StoreError(f"{root} is no folder of this machine; use a lifecycle rule of the store, or copy it here")
    needed, damaged = referenced(folder)
    items: list[GarbageItem] = []
    left: list[str] = []
    for stage in stages_of(folder):
        if stage not in damaged:
            _walk_stage(folder, stage, needed, items, left)
    items += _temporaries(folder, damaged)
    items += _scratch(folder)
    limit_s = time.time() - 3600 * min_age_h
    ordered = sorted(_as_old_as_their_run(folder, items), key=lambda item: item.path)
    old = tuple(item for item in ordered if item.written_s <= limit_s)
    young = tuple(item for item in ordered if item.written_s > limit_s)
    reasons = tuple(f"{stage}: {why}" for stage, why in sorted(damaged.items()))
    return Garbage(old, young, tuple(sorted(left)), reasons)


def _as_old_as_their_run(folder: LocalFolder, items: list[GarbageItem]) -> Iterator[GarbageItem]:
    """Yield the items; shards that are younger than their stage's output are as old as the youngest of them.

    They belong to an interrupted computation: one of days goes on with the shards of its first day, too.
    """
    since = {stage: _written_s(folder, f"{stage_folder(stage)}/{CURRENT}") for stage in stages_of(folder)}
    open_shards = [item for item in items if item.kind == "shard" and item.written_s > since[item.stage]]
    youngest: dict[str, float] = {}
    for item in open_shards:
        youngest[item.stage] = max(item.written_s, youngest.get(item.stage, 0.0))
    yield from (item for item in items if item.kind != "shard" or item.written_s <= since[item.stage])
    yield from (replace(item, written_s=youngest[item.stage]) for item in open_shards)


def _written_s(folder: LocalFolder, path: str) -> float:
    stat = _stat(folder, path)
    return 0.0 if stat is None else stat.st_mtime


def remove_garbage(root: str, min_age_h: float) -> Garbage:
    """Remove what `find_garbage` finds, while no run and no stage is at work; return what was removed.

    Raises:
        StoreError: a run or a stage is at work below the root, or the root is no folder of this machine.
    """
    with alone(root):
        found = find_garbage(root, min_age_h)
        for item in found.items:
            _remove(Path(open_folder(root).url), item)
    return found


def referenced(folder: LocalFolder) -> tuple[Referenced, dict[str, str]]:
    """Return what is needed, and stage -> why what it needs is unknown."""
    needed, damaged = Referenced(), {}
    everything = {stage: list(manifests_of(folder, stage)) for stage in stages_of(folder)}
    waiting: list[Manifest] = []
    for stage in everything:
        try:
            current = current_manifest(folder, stage)
        except StoreError as error:
            damaged[stage] = str(error)
            waiting += everything[stage]
            continue
        needed.files.add(f"{stage_folder(stage)}/{CURRENT}")
        waiting += [] if current is None else [current]
    kept: dict[tuple[str, str], Manifest] = {}
    while waiting:
        manifest = waiting.pop()
        if (manifest.stage, manifest.key) not in kept:
            kept[manifest.stage, manifest.key] = manifest
            waiting += _made_from(manifest, everything)
    for manifest in kept.values():
        _need(folder, manifest, needed)
    return needed, damaged


def _made_from(manifest: Manifest, everything: dict[str, list[Manifest]]) -> Iterator[Manifest]:
    """Yield, for every input, the first output that holds it: the one that counts, else the latest."""
    for name, fingerprint in manifest.inputs.items():
        for outputs in everything.values():
            holders = [m for m in outputs if name in m.entries and m.entries[name].fingerprint == fingerprint]
            yield from holders[:1]


def _need(folder: LocalFolder, manifest: Manifest, needed: Referenced) -> None:
    base = stage_folder(manifest.stage)
    needed.files.update(f"{base}/{manifest.key}/{name}" for name in (MANIFEST, RUN_RECORD, SOURCES))
    needed.files.update(f"{base}/{file.name}" for file in files_of(manifest))
    needed.folders.update(
        f"{base}/{SHARDS}/{key}" for name, key in manifest.inputs.items() if name.startswith("shard:")
    )
    for entry in manifest.entries.values():
        with contextlib.suppress(StoreError):  # a damaged label is worth nothing: its pack is made again
            packed = known_pack(folder, manifest.stage, entry)
            if packed is not None:
                needed.files.update((pack_label(manifest.stage, entry), f"{base}/{packed.name}"))


def _walk_stage(folder: LocalFolder, stage: str, needed: Referenced, items: list[GarbageItem], left: list[str]) -> None:
    """Sort the files of one stage's folder into what is needed, what is not, and what is none of ours."""
    base = stage_folder(stage)
    of_folder: dict[str, list[str]] = {}
    for path in _files(folder, base):
        parent, name = path.rsplit("/", 1)
        if name.startswith(TEMPORARY) or path in needed.files or parent in needed.folders:
            continue
        if _is_link(folder, path) or not _is_ours(base, parent, name):
            left.append(path)
        else:
            of_folder.setdefault(parent, []).append(path)
    in_use = {path.rsplit("/", 1)[0] for path in needed.files}
    for parent, files in of_folder.items():
        if parent == f"{base}/{PACKS}" or parent in in_use:
            kind: GarbageKind = "pack" if parent.endswith(f"/{PACKS}") else "stray"
            items += [_item(folder, kind, stage, path, [path]) for path in files]
        else:
            items.append(_item(folder, _kind(base, parent, files), stage, parent, files))


def _kind(base: str, parent: str, files: list[str]) -> GarbageKind:
    if parent.startswith(f"{base}/{SHARDS}/"):
        return "shard"
    return "output" if f"{parent}/{MANIFEST}" in files else "unfinished"


def _is_ours(base: str, parent: str, name: str) -> bool:
    """Return whether the store itself makes files of this name there."""
    depth = parent.removeprefix(base).count("/")
    if depth == 0 or depth > 2 or (depth == 2 and not parent.startswith(f"{base}/{SHARDS}/")):
        return False
    return name in OURS or DATA.fullmatch(name) is not None or LABEL.fullmatch(name) is not None


def _files(folder: LocalFolder, below: str) -> Iterator[str]:
    """Yield every file below a folder, relative to the root; links to folders are not followed."""
    root = Path(folder.url)
    for place, _, names in os.walk(root / below):
        yield from (str((Path(place) / name).relative_to(root)) for name in names)


def _is_link(folder: LocalFolder, path: str) -> bool:
    return (Path(folder.url) / path).is_symlink()


def _temporaries(folder: LocalFolder, damaged: Iterable[str]) -> Iterator[GarbageItem]:
    """Yield what killed writers left: below the artifacts, next to the reports, and at the root itself."""
    root = Path(folder.url)
    near = [str(path.relative_to(root)) for place in ("", "reports/") for path in root.glob(f"{place}{TEMPORARY}*")]
    for path in [*near, *_files(folder, ARTIFACTS)]:
        stage = path.split("/")[1] if path.startswith(f"{ARTIFACTS}/") else ""
        if path.rsplit("/", 1)[-1].startswith(TEMPORARY) and stage not in damaged and not _is_link(folder, path):
            yield _item(folder, "temporary", stage, path, [path])


def _scratch(folder: LocalFolder) -> Iterator[GarbageItem]:
    """Yield the folders in which interrupted computations keep their checkpoints."""
    root = Path(folder.url)
    for place in sorted((root / SCRATCH).glob("*/")):
        if not place.is_symlink():
            path = f"{SCRATCH}/{place.name}"
            stage = place.name.rsplit("-", 1)[0]
            yield _item(folder, "scratch", stage, path, [*_files(folder, path)])


def _item(folder: LocalFolder, kind: GarbageKind, stage: str, path: str, files: list[str]) -> GarbageItem:
    """Build an item; its markers come first."""
    ordered = sorted(files, key=lambda name: (name.rsplit("/", 1)[-1] not in MARKERS, name))
    found = [stat for stat in (_stat(folder, name) for name in [*ordered, *([] if ordered else [path])]) if stat]
    size, written = sum(s.st_size for s in found), max((s.st_mtime for s in found), default=0.0)
    return GarbageItem(kind, stage, path, tuple(ordered), size, written)


def _stat(folder: LocalFolder, path: str) -> os.stat_result | None:
    try:
        return (Path(folder.url) / path).lstat()
    except FileNotFoundError:
        return None


def _remove(root: Path, item: GarbageItem) -> None:
    try:
        for name in item.files:
            (root / name).unlink(missing_ok=True)
        if item.kind == "scratch":
            shutil.rmtree(root / item.path)
        elif item.path not in item.files and not any((root / item.path).iterdir()):
            (root / item.path).rmdir()
    except OSError as error:
        raise StoreIOError(
            f"cannot remove {root / item.path}: {error.strerror}; nothing that counts is lost"
        ) from error
