"""Committed shards that can be reused.

Paths do not enter a shard's key, since a moved corpus is the same corpus. But reject rows name files: the shard of a
renamed take is reused only if none of its rejects names an old path.
"""

from collections.abc import Mapping

from schemas.artifacts import ShardRecord
from trajpilot_core.engine.key import KeyedStage
from trajpilot_core.engine.provenance import read_notes, spelled
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import (
    current_manifest,
    missing_files,
    read_sealed,
    shard_path,
    stage_folder,
    unless_damaged,
    verified_file,
)
from trajpilot_core.store.parquet import read_table


def finished_shards(work: KeyedStage, folder: Folder) -> dict[str, ShardRecord]:
    """Return the committed shards of a stage, by name."""
    stage = work.resolved.stage.name
    found = {shard: usable_shard(folder, stage, key) for shard, key in work.shard_keys.items()}
    done = {shard: record for shard, record in found.items() if record is not None}
    misnamed = _misnamed(work, folder, done)
    return {shard: record for shard, record in done.items() if shard not in misnamed}


def usable_shard(folder: Folder, stage: str, key: str) -> ShardRecord | None:
    """Return the record of a finished shard with all its files; None: compute."""
    record = unless_damaged(read_sealed, folder, ShardRecord, shard_path(stage, key))
    if record is None or missing_files(folder, stage, record):
        return None
    return record


def _misnamed(work: KeyedStage, folder: Folder, done: Mapping[str, ShardRecord]) -> set[str]:
    """Return the shards with rejects that name a file that the take no longer has."""
    rejecting = {shard: record for shard, record in done.items() if record.rejects.rows}
    if not rejecting:
        return set()
    now = {source.shard: {spelled(path) for path in source.files} for source in work.resolved.sources}
    before = _noted(work, folder)
    moved = {shard: record for shard, record in rejecting.items() if before.get(shard) != now[shard]}
    return {shard for shard, record in moved.items() if not _named(work, folder, record) <= now[shard]}


def _noted(work: KeyedStage, folder: Folder) -> dict[str, set[str]]:
    """Return the noted files of the takes whose shards in the current output have the same keys."""
    current = unless_damaged(current_manifest, folder, work.resolved.stage.name)
    if current is None:
        return {}
    same = {shard for shard, key in work.shard_keys.items() if current.inputs.get(f"shard:{shard}") == key}
    notes = read_notes(folder, current.stage, current.key)
    return {shard: set(unit.files) for shard, unit in notes.items() if shard in same}


def _named(work: KeyedStage, folder: Folder, record: ShardRecord) -> set[str]:
    """Return the files that the rejects of a shard name; {""}, which matches no file, where the table is damaged."""
    base = stage_folder(work.resolved.stage.name)
    try:
        tables = [read_table(verified_file(folder, base, file), ["source_file"]) for file in record.rejects.files]
    except StoreError:
        return {""}
    return {spelled(path) for table in tables for path in table["source_file"].to_pylist() if path is not None}
