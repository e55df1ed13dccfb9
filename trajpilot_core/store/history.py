"""Earlier outputs of a stage, and the outputs that an output was made from."""

from collections.abc import Iterable, Iterator, Mapping

from schemas.artifacts import Manifest, RunRecord
from trajpilot_core.store.files import Folder
from trajpilot_core.store.locations import NAME
from trajpilot_core.store.manifest import (
    ARTIFACTS,
    CURRENT,
    PACKS,
    SHARDS,
    current_manifest,
    read_manifest,
    read_run_record,
    stage_folder,
    unless_damaged,
)

SPECIAL = {CURRENT, SHARDS, PACKS}
"""Names in a stage's folder that are not keys."""


def stages_of(folder: Folder) -> list[str]:
    """Return the stages with a folder below a root, sorted."""
    return [name for name in folder.names(ARTIFACTS) if NAME.fullmatch(name)]


def keys_of(folder: Folder, stage: str) -> list[str]:
    """Return the keys of a stage that have a folder, with or without a manifest, sorted."""
    return [name for name in folder.names(stage_folder(stage)) if NAME.fullmatch(name) and name not in SPECIAL]


def run_records_of(folder: Folder, stage: str) -> list[tuple[str, RunRecord]]:
    """Return (key, run record) of every output of a stage, latest first."""
    found = []
    for key in keys_of(folder, stage):
        run_record = unless_damaged(read_run_record, folder, stage, key)
        if run_record is not None:
            found.append((key, run_record))
    return sorted(found, key=lambda item: item[1].started, reverse=True)


def current_manifests(folder: Folder, stages: Iterable[str]) -> dict[str, Manifest | None]:
    """Return stage -> its current output; None where there is none or it is damaged."""
    return {name: unless_damaged(current_manifest, folder, name) for name in stages}


def manifests_of(folder: Folder, stage: str) -> Iterator[Manifest]:
    """Yield the readable manifests of a stage: the current one, then the others, latest first."""
    current = unless_damaged(current_manifest, folder, stage)
    if current is not None:
        yield current
    first = None if current is None else current.key
    dated = [key for key, _ in run_records_of(folder, stage)]
    for key in [*dated, *sorted(set(keys_of(folder, stage)) - set(dated))]:
        manifest = None if key == first else unless_damaged(read_manifest, folder, stage, key)
        if manifest is not None:
            yield manifest


def find_manifest(folder: Folder, stage: str, entry: str, fingerprint: str) -> Manifest | None:
    """Return the output of a stage that contains an entry with this fingerprint; None where there is none."""
    for manifest in manifests_of(folder, stage):
        if entry in manifest.entries and manifest.entries[entry].fingerprint == fingerprint:
            return manifest
    return None


def made_from(folder: Folder, manifest: Manifest, writer: Mapping[str, str]) -> dict[str, Manifest]:
    """Return stage -> output that `manifest` was made from, including itself; missing outputs are left out.

    Args:
        folder: the root.
        manifest: the output.
        writer: entry name -> stage that writes it.
    """
    found = {manifest.stage: manifest}
    waiting = [manifest]
    while waiting:
        reader = waiting.pop()
        for name in sorted(reader.inputs):
            stage = writer.get(name)
            if stage is not None and stage not in found:
                source = find_manifest(folder, stage, name, reader.inputs[name])
                if source is not None:
                    found[stage] = source
                    waiting.append(source)
    return found
