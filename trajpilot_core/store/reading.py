"""Reading committed entries: every byte is verified against the manifest first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from schemas.artifacts import Entry, Manifest
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import is_of_shard, stage_folder, verified_bytes, verified_file
from trajpilot_core.store.packs import pack_of
from trajpilot_core.store.parquet import Readable, read_table, read_vectors
from trajpilot_core.store.tensors import Models, Tensors, parse_tensors


@dataclass(frozen=True)
class StageInputs:
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
        return read_table(table_file(self.folder, producer, entry), columns)

    def vectors(self, name: str, column: str) -> NDArray[np.generic]:
        """Read a fixed-size vector column of a declared table into one (N, D) array, rows as in `table`."""
        producer, entry = self._find(name, "table")
        return read_vectors([table_file(self.folder, producer, entry)], column)

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
        producer, entry = self._declared(name)
        if entry.kind == "models":
            return {file.key: file.sha256 for file in entry.files if file.key}
        shards = self.shards.get(producer, ())
        if entry.kind == "table" and shards and all(is_of_shard(file) for file in entry.files):
            return {shard: file.sha256 for shard, file in zip(shards, entry.files, strict=True)}
        return {"": entry.fingerprint}

    def _find(self, name: str, kind: str) -> tuple[str, Entry]:
        producer, entry = self._declared(name)
        if entry.kind != kind:
            raise StoreError(f"stage {self.stage} reads {name!r} as a {kind}, but {producer} wrote a {entry.kind}")
        return producer, entry

    def _declared(self, name: str) -> tuple[str, Entry]:
        if name not in self.entries:
            raise StoreError(
                f"stage {self.stage} opens {name!r} but declares only {', '.join(sorted(self.entries)) or 'nothing'}; "
                "add the entry to Stage.reads"
            )
        return self.entries[name]


def refuse_mixed(inputs: StageInputs, manifests: Mapping[str, Manifest], where: str) -> None:
    """Refuse outputs if one was made from another version of its inputs than the current one.

    Args:
        inputs: the current entries.
        manifests: stage -> current output.
        where: root, for the message.

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


def table_file(folder: Folder, stage: str, entry: Entry) -> Readable:
    """Return the verified Parquet file of a table; for a sharded table its pack, built where it is missing.

    Raises:
        StoreError: a file is missing or damaged.
    """
    if len(entry.files) == 1:
        return verified_file(folder, stage_folder(stage), entry.files[0])
    return pack_of(folder, stage, entry)


def read_entry_table(folder: Folder, manifest: Manifest, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table of a manifest, outside any stage (for status pages and tests)."""
    return read_table(table_file(folder, manifest.stage, _entry(manifest, name)), columns)


def read_entry_document(folder: Folder, manifest: Manifest, name: str) -> bytes:
    """Read a document of a manifest, outside any stage."""
    return verified_bytes(folder, stage_folder(manifest.stage), _entry(manifest, name).files[0])


def _entry(manifest: Manifest, name: str) -> Entry:
    if name not in manifest.entries:
        raise StoreError(f"{manifest.stage} has no entry {name!r}; it has {', '.join(sorted(manifest.entries))}")
    return manifest.entries[name]
