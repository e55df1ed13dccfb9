"""Packs: one Parquet file of all shards of a table, sorted by take. Derived, disposable, rebuilt where missing.

Reading 2,549 small files takes 8.6 s, one file 1.2 s (docs/decisions/store.md).
"""

from collections.abc import Iterator

import pyarrow as pa

from schemas.artifacts import Entry, FileEntry
from schemas.base import Record
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import PACKS, read_sealed, seal, stage_folder, verified_file, write_data
from trajpilot_core.store.parquet import Readable, open_parquet, read_table, tables_bytes


class Pack(Record):
    """Label of a pack. The file is a separate field, because the `sha256` of a sealed record is that of the record."""

    file: FileEntry


def pack_label(stage: str, entry: Entry) -> str:
    """Return the path of the label of a sharded table's pack, relative to the root."""
    return f"{stage_folder(stage)}/{PACKS}/{entry.fingerprint}.json"


def known_pack(folder: Folder, stage: str, entry: Entry) -> FileEntry | None:
    """Return the pack that the label of a table names; None where there is none; StoreError where it is damaged."""
    label = read_sealed(folder, Pack, pack_label(stage, entry))
    return None if label is None else label.file


def pack_of(folder: Folder, stage: str, entry: Entry) -> Readable:
    """Return the verified pack of a sharded table; rebuild it from the verified shards where it is missing or damaged.

    Raises:
        StoreError: the table has no shard, or a shard is missing or damaged.
    """
    if not entry.files:
        raise StoreError(f"{stage} has no shards; see {stage}.rejects and the rejects of earlier stages")
    try:
        packed = known_pack(folder, stage, entry)
        if packed is not None:
            return verified_file(folder, stage_folder(stage), packed)
    except StoreError:
        folder.remove(pack_label(stage, entry))
    return _build(folder, stage, entry, pack_label(stage, entry))


def _build(folder: Folder, stage: str, entry: Entry, label: str) -> Readable:
    base = stage_folder(stage)
    with open_parquet(verified_file(folder, base, entry.files[0])) as first:
        schema = first.schema_arrow
    content = tables_bytes(_shards(folder, base, entry), schema)
    packed = write_data(folder, stage, PACKS, "parquet", content, entry.rows)
    folder.replace(label, seal(Pack(file=packed)))
    return verified_file(folder, base, packed)


def _shards(folder: Folder, base: str, entry: Entry) -> Iterator[pa.Table]:
    for file in entry.files:
        yield read_table(verified_file(folder, base, file))
