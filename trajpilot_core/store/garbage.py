"""What no manifest names any more: found by a walk over the artifacts, removed on request.

Named is the output of every stage that counts, everything that such an output was made from, and their shards and
packs. A stage whose pointer or manifest is damaged is left alone as a whole, with all that any of its outputs was made
from: what it needs is unknown.
"""

import contextlib
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from schemas.artifacts import Manifest
from trajpilot_core.errors import StoreError, StoreIOError
from trajpilot_core.store.files import TEMPORARY, LocalFolder, open_folder
from trajpilot_core.store.history import manifests_of, stages_of
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
    stage_folder,
)
from trajpilot_core.store.packs import known_pack, pack_label

SCRATCH = "scratch"
OURS = re.compile(
    rf"[^/]+/(?:{SHARDS}/)?[^/]+/(?:{MANIFEST}|{RECORD}|{RUN_RECORD}|{SOURCES}"
    r"|data-[0-9a-f]{64}\.[A-Za-z0-9_.-]+|[0-9a-f]{64}\.json)"
)
"""Files that the store itself makes below the artifacts."""


@dataclass(frozen=True)
class GarbageGroup:
    """Files that nothing names and that go together, because half an output is worse than none."""

    name: str
    """Of the stage, or the path of a folder of scratch or of a file outside the artifacts."""
    files: tuple[str, ...]
    """Relative to the root. First those that make others exist, so that an interrupted removal leaves nothing torn."""
    bytes: int
    written_s: float
    """When the youngest of its files was written, seconds since 1970."""


@dataclass(frozen=True)
class Garbage:
    """What a walk over a root found, sorted by name."""

    groups: tuple[GarbageGroup, ...]
    """What `gc` removes."""
    young: tuple[GarbageGroup, ...]
    """What it keeps because it is too young."""
    left: tuple[str, ...]
    """Files that are none of the store's: never touched."""
    damaged: tuple[str, ...]
    """Stages whose output cannot be read, with the reason: never touched."""


@dataclass
class NamedPaths:
    """Paths that are needed, relative to the root."""

    files: set[str] = field(default_factory=set)
    folders: set[str] = field(default_factory=set)
    """Needed as a whole."""


def find_garbage(root: str, min_age_h: float) -> Garbage:
    """Look for what nothing names; nothing is changed.

    Args:
        root: a folder of this machine.
        min_age_h: younger groups are kept, hours: a crashed run goes on with its finished shards and checkpoints.

    Raises:
        StoreError: the root is an object store.
    """
    folder = open_folder(root)
    if not isinstance(folder, LocalFolder):
        raise StoreError(f"{root} is no folder of this machine; use a lifecycle rule of the store, or copy it here")
    named, damaged = named_files(folder)
    files: dict[str, list[str]] = {}
    left: list[str] = []
    for name, path in _candidates(folder, set(damaged)):
        parent, _, last = path.rpartition("/")
        is_temporary = last.startswith(TEMPORARY)
        if not is_temporary and (path in named.files or parent in named.folders):
            continue
        in_artifacts = path.startswith(f"{ARTIFACTS}/")
        is_ours = is_temporary or not in_artifacts or OURS.fullmatch(path.removeprefix(f"{ARTIFACTS}/"))
        if is_ours and not (Path(folder.url) / path).is_symlink():
            files.setdefault(name, []).append(path)
        else:
            left.append(path)
    groups = [_group(Path(folder.url), *item) for item in sorted(files.items())]
    limit_s = time.time() - 3600 * min_age_h
    old, young = (tuple(one for one in groups if (one.written_s <= limit_s) == is_old) for is_old in (True, False))
    return Garbage(old, young, tuple(sorted(left)), tuple(f"{stage}: {why}" for stage, why in sorted(damaged.items())))


def remove_garbage(root: str, min_age_h: float) -> Garbage:
    """Remove what `find_garbage` finds, while no run and no stage is at work; return what was removed.

    Raises:
        StoreError: a run or a stage is at work below the root, or the root is no folder of this machine.
    """
    with alone(root):
        found, place = find_garbage(root, min_age_h), Path(open_folder(root).url)
        for path in (place / name for group in found.groups for name in group.files):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StoreIOError(f"cannot remove {path}: {error.strerror}; nothing that counts is lost") from error
            for parent in path.relative_to(place).parents[:-2]:
                with contextlib.suppress(OSError):  # it holds something else
                    (place / parent).rmdir()
    return found


def named_files(folder: LocalFolder) -> tuple[NamedPaths, dict[str, str]]:
    """Return what is needed, and stage -> why what it needs is unknown."""
    named, damaged = NamedPaths(), {}
    outputs = {stage: list(manifests_of(folder, stage)) for stage in stages_of(folder)}
    waiting: list[Manifest] = []
    for stage in outputs:
        try:
            current = current_manifest(folder, stage)
            named.files.add(f"{stage_folder(stage)}/{CURRENT}")
            waiting += [] if current is None else [current]
        except StoreError as error:
            damaged[stage] = str(error)
            waiting += outputs[stage]
    kept = set()
    while waiting:
        manifest = waiting.pop()
        if (manifest.stage, manifest.key) not in kept:
            kept.add((manifest.stage, manifest.key))
            _name(folder, manifest, named)
            for entry, fingerprint in manifest.inputs.items():
                for earlier in outputs.values():  # the first that holds it: the one that counts, else the latest
                    holders = (m for m in earlier if entry in m.entries and m.entries[entry].fingerprint == fingerprint)
                    waiting += [one for one in (next(holders, None),) if one is not None]
    return named, damaged


def _name(folder: LocalFolder, manifest: Manifest, named: NamedPaths) -> None:
    base = stage_folder(manifest.stage)
    named.files.update(f"{base}/{manifest.key}/{name}" for name in (MANIFEST, RUN_RECORD, SOURCES))
    named.files.update(f"{base}/{file.name}" for file in files_of(manifest))
    shards = [key for name, key in manifest.inputs.items() if name.startswith("shard:")]
    named.folders.update(f"{base}/{SHARDS}/{key}" for key in shards)
    for entry in manifest.entries.values():
        with contextlib.suppress(StoreError):  # a damaged label is worth nothing: its pack is made again
            packed = known_pack(folder, manifest.stage, entry)
            if packed is not None:
                named.files.update((pack_label(manifest.stage, entry), f"{base}/{packed.name}"))


def _candidates(folder: LocalFolder, damaged: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (name of the group, path) of every file that may be garbage; links to folders are not followed."""
    root = Path(folder.url)
    places = [(stage, root / stage_folder(stage)) for stage in stages_of(folder) if stage not in damaged]
    places += [(f"{SCRATCH}/{one.name}", one) for one in (root / SCRATCH).glob("*/") if not one.is_symlink()]
    for name, place in places:
        for path in place.rglob("*"):
            if path.is_symlink() or not path.is_dir():
                yield name, str(path.relative_to(root))
    for path in (*root.glob(f"{TEMPORARY}*"), *root.glob(f"reports/{TEMPORARY}*")):
        yield str(path.relative_to(root)), str(path.relative_to(root))


def _group(root: Path, name: str, files: list[str]) -> GarbageGroup:
    ordered = sorted(files, key=lambda path: (path.rpartition("/")[2] not in (MANIFEST, RECORD), path))
    stats = []
    for path in ordered:
        with contextlib.suppress(FileNotFoundError):  # a stage is at work
            stats.append((root / path).lstat())
    return GarbageGroup(
        name, tuple(ordered), sum(s.st_size for s in stats), max((s.st_mtime for s in stats), default=0)
    )
