"""Files below a root that no output in use needs, removed on request.

In use are the current output of every stage and all outputs that it was made from, with their shards. Only
files that the store writes, scratch and temporary files are removed; links are neither followed nor removed.
"""

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import TEMPORARY, Folder, LocalFolder, naming_failures, open_folder
from trajpilot_core.store.lock import alone
from trajpilot_core.store.manifest import (
    ARTIFACTS,
    MANIFEST,
    RECORD,
    RUN_RECORD,
    SHARDS,
    SOURCES,
    current_manifest,
    files_of,
    stage_folder,
)
from trajpilot_core.store.reading import made_from, stages_of

SCRATCH = "scratch"
WRITTEN = re.compile(
    rf"{ARTIFACTS}/[^/]+/(?:{SHARDS}/)?[^/]+/(?:{MANIFEST}|{RECORD}|{RUN_RECORD}|{SOURCES}"
    r"|data-[0-9a-f]{64}\.[A-Za-z0-9_.-]+)"
)
"""Files that the store writes and that may become garbage."""


@dataclass(frozen=True)
class Unused:
    """Unused files of a stage or of a scratch folder, or a temporary file. Half an output is worse than none."""

    name: str
    """First two parts of the path, e.g. `artifacts/ingest` or `scratch/predictor-0123456789abcdef`."""
    files: tuple[str, ...]
    """Relative to the root; manifests and records first, so that an interrupted removal leaves no broken output."""
    bytes: int
    age_h: float
    """Hours since the youngest of its files was written."""


def find_garbage(root: str) -> list[Unused]:
    """Return what no output in use needs, by name; nothing is changed.

    Raises:
        StoreError: the root is an object store, or the current output of a stage is damaged.
    """
    folder = open_folder(root)
    if not isinstance(folder, LocalFolder):
        raise StoreError(f"{root} is not a folder of this machine; use a lifecycle rule of the store, or copy it here")
    used = paths_in_use(folder)
    groups: dict[str, dict[str, os.stat_result]] = {}
    for place, _, names in os.walk(folder.url):
        for file in (Path(place, name) for name in names):
            path = os.path.relpath(file, folder.url)
            if _is_garbage(path, used) and not file.is_symlink():
                with contextlib.suppress(FileNotFoundError):  # a stage is running
                    groups.setdefault("/".join(path.split("/")[:2]), {})[path] = file.stat()
    return [_unused(name, state_of) for name, state_of in sorted(groups.items())]


def remove_garbage(root: str, min_age_h: float) -> list[Unused]:
    """Remove what `find_garbage` finds, while no run and no stage is active; return what was removed.

    Groups younger than `min_age_h` hours are kept: a crashed run resumes from its finished shards and checkpoints.

    Raises:
        StoreError: as `find_garbage`, or a run or a stage is active below the root.
    """
    with alone(root):
        old = [group for group in find_garbage(root) if group.age_h >= min_age_h]
        place = Path(open_folder(root).url)
        for path in (place / name for group in old for name in group.files):
            with naming_failures("remove", path):
                path.unlink(missing_ok=True)
        for parent in [parent for parent, _, _ in os.walk(place, topdown=False)]:
            if os.path.relpath(parent, place).startswith((f"{ARTIFACTS}/", f"{SCRATCH}/")):
                with contextlib.suppress(OSError):  # it is not empty
                    Path(parent).rmdir()
    return old


def _is_garbage(path: str, used: set[str]) -> bool:
    folder, _, name = path.rpartition("/")
    if name.startswith(TEMPORARY) or path.startswith(f"{SCRATCH}/"):
        return True
    return WRITTEN.fullmatch(path) is not None and path not in used and folder not in used


def _unused(name: str, state_of: dict[str, os.stat_result]) -> Unused:
    paths = sorted(state_of, key=lambda path: (path.rpartition("/")[2] not in (MANIFEST, RECORD), path))
    states = state_of.values()
    age_s = time.time() - max(state.st_mtime for state in states)
    return Unused(name, tuple(paths), sum(state.st_size for state in states), age_s / 3600)


def paths_in_use(folder: Folder) -> set[str]:
    """Return the files that outputs in use need, and the folders of their shards.

    Raises:
        StoreError: the current output of a stage is damaged.
    """
    currents = [current_manifest(folder, stage) for stage in stages_of(folder)]
    paths: set[str] = set()
    for manifest in made_from(folder, [manifest for manifest in currents if manifest is not None]):
        base = stage_folder(manifest.stage)
        paths |= {f"{base}/{manifest.key}/{name}" for name in (MANIFEST, RUN_RECORD, SOURCES)}
        paths |= {f"{base}/{file.name}" for file in files_of(manifest)}
        paths |= {f"{base}/{SHARDS}/{key}" for name, key in manifest.inputs.items() if name.startswith("shard:")}
    return paths
