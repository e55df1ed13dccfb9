"""The sink of a stage: files are written immediately and become visible when the executor commits."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from schemas.arrow import table_of
from schemas.artifacts import Entry, FileEntry, ShardRecord
from schemas.base import canonical_json
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.locations import check_name
from trajpilot_core.store.manifest import SHARDS, entry_of, seal, shard_path, write_data
from trajpilot_core.store.parquet import open_parquet, table_bytes, tables_bytes
from trajpilot_core.store.tensors import Tensors, tensors_bytes


@dataclass
class Sink:
    """Where a stage writes its results; they become visible when the executor commits.

    A stage sharded by take uses only `shard`, one whose shards are trainings only `training`. All other methods are for
    stages without shards, for the share of a training, and for the conclusion of a stage.
    """

    folder: Folder
    stage: str
    writes: tuple[str, ...]
    """Entries that the stage declares."""
    below: str
    """Folder of its files below the stage's folder: the key of the stage or of a shard."""
    shard_keys: Mapping[str, str] = field(default_factory=dict)
    """Shards to deliver, and their keys."""
    unstable: Callable[[str], list[str]] = lambda shard: []
    """Shard -> its input files that changed since they were hashed."""
    delivered: Callable[[int], None] = lambda n_done: None
    """Called with the number of finished shards."""
    entries: dict[str, Entry] = field(default_factory=dict)
    written: dict[str, dict[str, FileEntry]] = field(default_factory=dict)
    """Entry of models that `models` has not completed yet -> key -> file."""
    about: dict[str, dict[str, str]] = field(default_factory=dict)
    """Entry of models that `models` has not completed yet -> facts about them from shards."""
    whole: bool = True
    """The stage, or this part of it, is written as a whole; False: shard by shard."""
    rejects: list[Reject] = field(default_factory=list)
    counts: tuple[int, int] | None = None
    shards: dict[str, ShardRecord] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    """Input files that changed meanwhile."""

    def table(self, name: str, table: pa.Table) -> None:
        """Write a declared table."""
        self._claim(name)
        self.entries[name] = entry_of("table", [self._write("parquet", table_bytes(table), table.num_rows)])

    def table_in_parts(self, name: str, parts: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Write a declared table from parts; one part at a time is in memory, next to the packed file."""
        self._claim(name)
        content = tables_bytes(parts, schema)
        with open_parquet(content) as file:
            rows = file.metadata.num_rows
        self.entries[name] = entry_of("table", [self._write("parquet", content, rows)])

    def model(self, name: str, key: str, tensors: Tensors) -> None:
        """Write one model of a declared entry of models; arrays of any shape."""
        self._claim(name)
        files = self.written.setdefault(name, {})
        if not key:
            raise StoreError(f"stage {self.stage} writes a model of {name!r} without a key")
        if key in files:
            raise StoreError(f"stage {self.stage} writes the model {key!r} of {name!r} twice; keys must be unique")
        files[key] = self._write("safetensors", tensors_bytes(tensors), 0).replace(key=key)

    def models(self, name: str, about: Mapping[str, str]) -> None:
        """Complete a declared entry of models; its files are sorted by key, in whatever order they were written."""
        self._claim(name)
        files = self.written.pop(name, {})
        facts = joined(self.stage, [self.about.pop(name, {}), about])
        first = self._write("about.json", canonical_json({**facts}).encode(), 0)
        self.entries[name] = entry_of("models", [first, *(files[key] for key in sorted(files))])

    def document(self, name: str, content: bytes) -> None:
        """Write a declared document; its file ends in its name."""
        self._claim(name)
        self.entries[name] = entry_of("document", [self._write(check_name(name), content, 0)])

    def reject(self, rejects: Iterable[Reject]) -> None:
        """Add rows to the stage's rejects table."""
        self._not_sharded("reject")
        self.rejects.extend(rejects)

    def count(self, n_in: int, n_out: int) -> None:
        """Record rows in and out."""
        self._not_sharded("count")
        self.counts = (n_in, n_out)

    def shard(self, shard: str, table: pa.Table, rejects: Sequence[Reject], n_in: int) -> None:
        """Commit one shard immediately; if its input files changed meanwhile, one reject replaces its rows."""
        key = self._key_of(shard)
        changed = self.unstable(shard)
        if changed:
            detail = f"{', '.join(changed)} changed while the stage read it"
            table = table.slice(0, 0)
            rejects = [reject(self.stage, RejectCode.INPUT_UNSTABLE, shard, detail, n_units=n_in)]
            self.changed += changed
        check_balance(f"{self.stage}, shard {shard}", n_in, table.num_rows, rejects)
        below = f"{SHARDS}/{key}"
        data = write_data(self.folder, self.stage, below, "parquet", table_bytes(table), table.num_rows)
        record = ShardRecord(
            stage=self.stage,
            key=key,
            shard=shard,
            entry=entry_of("table", [data]),
            rejects=entry_of("table", [write_rejects(self.folder, self.stage, below, rejects)] if rejects else []),
            n_in=n_in,
            n_out=table.num_rows,
            rejected=count_codes(rejects),
        )
        if not changed:
            self.folder.replace(shard_path(self.stage, key), seal(record))
        self.shards[shard] = record
        self.delivered(len(self.shards))

    @contextmanager
    def training(self, shard: str) -> Iterator["Sink"]:
        """Open the share of one training; its record is written last, when the block succeeds.

        Raises:
            InputError: input files changed meanwhile, so the model belongs to no single state of them.
        """
        key = self._key_of(shard)
        share = Sink(self.folder, self.stage, self.writes, f"{SHARDS}/{key}")
        yield share
        changed = self.unstable(shard)
        if changed:
            shown = ", ".join(changed[:5])
            raise InputError(f"{shown} changed while {self.stage} read it; run again when nothing writes there")
        first = self.writes[0]
        if first not in share.entries:
            raise StoreError(f"stage {self.stage}, training {shard!r}: ended without {first}")
        record = ShardRecord(
            stage=self.stage,
            key=key,
            shard=shard,
            entry=share.entries[first],
            rejects=entry_of("table", []),
            n_in=0,
            n_out=0,
            rejected={},
            further={name: entry for name, entry in share.entries.items() if name != first},
        )
        self.folder.replace(shard_path(self.stage, key), seal(record))
        self.shards[shard] = record
        self.delivered(len(self.shards))

    def _key_of(self, shard: str) -> str:
        if shard not in self.shard_keys:
            raise StoreError(f"stage {self.stage} delivers the shard {shard!r}, which is not pending")
        return self.shard_keys[shard]

    def _write(self, suffix: str, content: bytes, rows: int) -> FileEntry:
        return write_data(self.folder, self.stage, self.below, suffix, content, rows)

    def _claim(self, name: str) -> None:
        self._not_sharded(name)
        if name not in self.writes:
            declared = ", ".join(self.writes) or "nothing"
            raise StoreError(f"stage {self.stage} writes {name[:80]!r} but declares only {declared}; see Stage.writes")
        if name in self.entries:
            raise StoreError(f"stage {self.stage} writes {name!r} twice")

    def _not_sharded(self, what: str) -> None:
        if not self.whole:
            raise StoreError(f"stage {self.stage} is sharded; write {what!r} with Sink.shard or Sink.training")


def joined(stage: str, facts: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Merge the facts about the models of one entry.

    Raises:
        StoreError: two facts contradict each other.
    """
    merged: dict[str, str] = {}
    for part in facts:
        for name, value in part.items():
            if merged.setdefault(name, value) != value:
                raise StoreError(f"stage {stage}: its models disagree on {name!r}: {merged[name][:80]}, {value[:80]}")
    return merged


def write_rejects(folder: Folder, stage: str, below: str, rejects: Iterable[Reject]) -> FileEntry:
    """Write a rejects table, in a fixed order."""

    def order(row: Reject) -> tuple[str, str, str, str, int, str]:
        offset = -1 if row.source_offset is None else row.source_offset
        return (row.take, row.segment or "", row.code, row.source_file or "", offset, row.detail)

    rows = sorted(rejects, key=order)
    return write_data(folder, stage, below, "parquet", table_bytes(table_of(Reject, rows)), len(rows))


def count_codes(rejects: Iterable[Reject]) -> dict[str, int]:
    """Return code -> units lost, or rows affected where the code drops none; sorted by code."""
    counts: Counter[str] = Counter()
    for row in rejects:
        counts[row.code.value] += row.n_units if row.severity == "drop" else 1
    return dict(sorted(counts.items()))


def check_balance(where: str, n_in: int, n_out: int, rejects: Iterable[Reject]) -> None:
    """Check that rows in equal rows out plus units lost to rejects.

    Raises:
        StoreError: they differ.
    """
    lost = sum(row.n_units for row in rejects)
    if n_in != n_out + lost:
        raise StoreError(
            f"{where}: row count mismatch: {n_in} in, {n_out} out, {lost} rejected; every dropped row needs a reject"
        )
