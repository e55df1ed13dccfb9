"""Reading committed entries, of this and of earlier outputs: every byte is verified against the manifest first."""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.artifacts import Entry, FileEntry, Manifest, RunRecord
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import (
    ARTIFACTS,
    CURRENT,
    SHARDS,
    current_key,
    current_manifest,
    read_manifest,
    read_run_record,
    stage_folder,
    unless_damaged,
    verified_bytes,
)
from trajpilot_core.store.parquet import read_table, vectors_of
from trajpilot_core.store.tensors import Models, Tensors, parse_tensors


@dataclass(frozen=True)
class Inputs:
    """The declared inputs of one stage, the only ones that it can open."""

    folder: Folder
    stage: str
    entries: Mapping[str, tuple[str, Entry]]
    """Entry name -> (stage that wrote it, the entry)."""
    shards: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stage that wrote an entry -> its sorted shards; empty where it is not sharded."""

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read and verify a declared table; StoreError where it is not declared, not a table, or damaged."""
        producer, entry = self._find(name, "table")
        return read_stored(self.folder, producer, entry, columns)

    def vectors(self, name: str, column: str) -> NDArray[np.generic]:
        """Read a fixed-size vector column of a declared table into one (N, D) array, rows as in `table`."""
        return vectors_of(self.table(name, [column]), column)

    def models(self, name: str) -> Models:
        """Open a declared entry of models; the file of a model is read and verified on demand."""
        producer, entry = self._find(name, "models")
        about_file, *files = entry.files
        file_of = {file.key: file for file in files}

        def parameters(key: str) -> Tensors:
            """Return the arrays of one model in their original shapes."""
            return parse_tensors(verified_bytes(self.folder, stage_folder(producer), file_of[key]))

        about = json.loads(verified_bytes(self.folder, stage_folder(producer), about_file))
        return Models(about, tuple(file_of), parameters)

    def document(self, name: str) -> bytes:
        """Read and verify a declared document."""
        producer, entry = self._find(name, "document")
        return verified_bytes(self.folder, stage_folder(producer), entry.files[0])

    def parts(self, name: str) -> Mapping[str, str]:
        """Return the digests of the parts of a declared entry, by shard or by model key, without reading it."""
        producer, entry = self._find(name)
        if entry.kind == "models":
            return {file.key: file.sha256 for file in entry.files if file.key}
        shards = self.shards.get(producer, ())
        # split by shard only if its shards wrote every file, not the stage as a whole
        if entry.kind == "table" and shards and all(file.name.startswith(f"{SHARDS}/") for file in entry.files):
            return {shard: file.sha256 for shard, file in zip(shards, entry.files, strict=True)}
        return {"": entry.fingerprint}

    def _find(self, name: str, kind: str | None = None) -> tuple[str, Entry]:
        if name not in self.entries:
            raise StoreError(
                f"stage {self.stage} opens {name!r} but declares only {', '.join(sorted(self.entries)) or 'nothing'}; "
                "add the entry to Stage.reads"
            )
        producer, entry = self.entries[name]
        if kind not in (None, entry.kind):
            raise StoreError(f"stage {self.stage} reads {name!r} as a {kind}, but {producer} wrote a {entry.kind}")
        return producer, entry


def refuse_mixed(inputs: Inputs, manifests: Mapping[str, Manifest], where: str) -> None:
    """Refuse outputs if one was made from another version of its inputs than the current one, under the root `where`.

    Raises:
        StoreError: there is such an output.
    """
    for stage, manifest in manifests.items():
        for name, (producer, entry) in inputs.entries.items():
            if manifest.inputs.get(name, entry.fingerprint) != entry.fingerprint:
                raise StoreError(
                    f"{stage} under {where} was made from an older {name!r} than the current one of {producer}; update "
                    f"the root first: repeat the command of its last run with --from {producer}"
                )


def read_stored(folder: Folder, stage: str, entry: Entry, columns: Sequence[str] | None = None) -> pa.Table:
    """Read and verify a table; the files of its shards, if it has any, one after the other.

    Raises:
        StoreError: the table has no shard, or a file is missing or damaged.
    """
    if not entry.files:
        raise StoreError(f"{stage} has no shards; see {stage}.rejects and the rejects of earlier stages")

    def read(file: FileEntry) -> pa.Table:
        return read_table(verified_bytes(folder, stage_folder(stage), file), columns)

    with ThreadPoolExecutor() as pool:  # a table may have thousands of shards, each an object of a store
        return pa.concat_tables(pool.map(read, entry.files))


def read_entry_table(folder: Folder, manifest: Manifest, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table of a manifest, outside any stage (for status pages and tests)."""
    return read_stored(folder, manifest.stage, _entry(manifest, name), columns)


def read_entry_document(folder: Folder, manifest: Manifest, name: str) -> bytes:
    """Read a document of a manifest, outside any stage."""
    return verified_bytes(folder, stage_folder(manifest.stage), _entry(manifest, name).files[0])


def _entry(manifest: Manifest, name: str) -> Entry:
    if name not in manifest.entries:
        raise StoreError(f"{manifest.stage} has no entry {name!r}; it has {', '.join(sorted(manifest.entries))}")
    return manifest.entries[name]


def stages_of(folder: Folder) -> list[str]:
    """Return the stages with a folder below a root, sorted."""
    return folder.names(ARTIFACTS)


def keys_of(folder: Folder, stage: str) -> list[str]:
    """Return the keys of a stage that have a folder, with or without a manifest, sorted."""
    return [name for name in folder.names(stage_folder(stage)) if name not in (CURRENT, SHARDS)]


def run_records_of(folder: Folder, stage: str) -> list[tuple[str, RunRecord]]:
    """Return (key, run record) of every output of a stage, latest first."""
    records = []
    for key in keys_of(folder, stage):
        run_record = unless_damaged(read_run_record, folder, stage, key)
        if run_record is not None:
            records.append((key, run_record))
    return sorted(records, key=lambda item: item[1].started, reverse=True)


def current_manifests(folder: Folder, stages: Iterable[str]) -> dict[str, Manifest | None]:
    """Return stage -> its current output; None where there is none or it is damaged."""
    return {name: unless_damaged(current_manifest, folder, name) for name in stages}


def manifests_of(folder: Folder, stage: str) -> Iterator[Manifest]:
    """Yield the readable manifests of a stage, the current one first."""
    current = unless_damaged(current_key, folder, stage)
    for key in sorted(keys_of(folder, stage), key=lambda key: (key != current, key)):
        manifest = unless_damaged(read_manifest, folder, stage, key)
        if manifest is not None:
            yield manifest


def find_manifest(folder: Folder, stage: str, entry: str, fingerprint: str) -> Manifest | None:
    """Return the output of a stage that contains an entry with this fingerprint; None where there is none."""
    for manifest in manifests_of(folder, stage):
        if entry in manifest.entries and manifest.entries[entry].fingerprint == fingerprint:
            return manifest
    return None


def made_from(folder: Folder, outputs: Iterable[Manifest]) -> list[Manifest]:
    """Return outputs, then all earlier ones that they were made from; those that are gone are left out."""
    holder: dict[tuple[str, str], Manifest] = {}
    for manifest in (manifest for stage in stages_of(folder) for manifest in manifests_of(folder, stage)):
        for name, entry in manifest.entries.items():
            holder.setdefault((name, entry.fingerprint), manifest)  # the current one, else any
    used: dict[tuple[str, str], Manifest] = {}
    waiting = deque(outputs)
    while waiting:
        manifest = waiting.popleft()
        if (manifest.stage, manifest.key) not in used:
            used[manifest.stage, manifest.key] = manifest
            waiting += [holder[entry] for entry in manifest.inputs.items() if entry in holder]
    return list(used.values())
