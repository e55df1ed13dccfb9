"""The committed outputs of the stages under one root: what pictures and summaries are made from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.annotation import SIMULATED
from schemas.artifacts import Entry
from schemas.config import PipelineConfig, RunOptions
from schemas.released import released_note
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest, stage_folder, verified_bytes, verified_file
from trajpilot_core.store.parquet import read_table
from trajpilot_core.store.reading import table_file

WARNING = "SIMULATED WORLD: no evidence about real recordings, not comparable with published figures"


@dataclass(frozen=True)
class Committed:
    """The current outputs of a root, and the settings of the run."""

    folder: Folder
    config: PipelineConfig
    run: RunOptions

    def table(self, stage: str, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a committed table, verified. Raises StoreError if there is none."""
        return read_table(table_file(self.folder, stage, self._entry(stage, name)), columns)

    def some_shards(self, stage: str, name: str, n: int, columns: Sequence[str]) -> list[pa.Table]:
        """Read at most `n` shards of a sharded table, evenly spaced among those with rows; no others are opened."""
        files = [file for file in self._entry(stage, name).files if file.rows]
        chosen = [files[i * len(files) // n] for i in range(n)] if len(files) > n else files
        return [read_table(verified_file(self.folder, stage_folder(stage), file), columns) for file in chosen]

    def about(self, stage: str, name: str) -> Mapping[str, str]:
        """Return the description that an entry of models has of all of them, verified."""
        first, *_ = self._entry(stage, name).files
        about: Mapping[str, str] = json.loads(verified_bytes(self.folder, stage_folder(stage), first))
        return about

    def warning(self) -> str:
        """Return the notice for results of a simulated corpus or on released features; empty for others."""
        simulated = SIMULATED in self.table("ingest", "takes", ("corpus",))["corpus"].to_pylist()
        features = self.config.features
        released = f"{features.released}: {released_note(features.released)}" if features.source == "released" else ""
        return "; ".join(note for note in (WARNING if simulated else "", released) if note)

    def _entry(self, stage: str, name: str) -> Entry:
        manifest = current_manifest(self.folder, stage)
        if manifest is None or name not in manifest.entries:
            raise StoreError(f"there is no {name} under {self.folder.url}; run {stage} first")
        return manifest.entries[name]


def committed_under(config: PipelineConfig, run: RunOptions) -> Committed:
    """Return the committed outputs under the root of a run."""
    return Committed(open_folder(run.root, run.protocols), config, run)
