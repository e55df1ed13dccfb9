"""What is there: state of each stage and where each output came from. Imports neither torch nor Prefect."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.outcome import units_lost
from trajpilot_core.engine.key import producers
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest, manifest_path, read_run_record, unless_damaged


@dataclass(frozen=True)
class StatusRow:
    """One stage as it stands."""

    plan: PlanRow
    rows: int | None
    """Rows out of the output that counts; None where there is none."""
    rejected: int | None
    started: str | None
    """When it was computed, ISO 8601 in UTC."""
    seconds: float | None
    uri: str | None


@dataclass(frozen=True)
class LineageRow:
    """One input of one output."""

    stage: str
    key: str
    reads: str
    """Entry, or a count of files or shards."""
    producer: str | None
    """Stage that wrote the entry; None for what comes from outside."""
    current: bool
    """The input is still what its producer's output holds now."""


def status(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> list[StatusRow]:
    """Return the state of every stage, in order; files are looked at, not read."""
    folder = open_folder(run.root, run.protocols)
    return [_status_row(folder, row) for row in plan(stages, config, run)]


def _status_row(folder: Folder, row: PlanRow) -> StatusRow:
    manifest = row.current
    ran = None if manifest is None else unless_damaged(read_run_record, folder, manifest.stage, manifest.key)
    return StatusRow(
        plan=row,
        rows=None if manifest is None else manifest.n_out,
        rejected=None if manifest is None else units_lost(manifest.rejected),
        started=None if ran is None else ran.started,
        seconds=None if ran is None else ran.seconds,
        uri=None if manifest is None else f"{folder.url}/{manifest_path(manifest.stage, manifest.key)}",
    )


def lineage(stages: Mapping[str, AnyStage], run: RunOptions) -> list[LineageRow]:
    """Return what every output that counts was made from, stage by stage.

    Raises:
        StoreError: the root cannot be opened.
    """
    folder = open_folder(run.root, run.protocols)
    writer = producers(stages)
    manifests = {name: unless_damaged(current_manifest, folder, name) for name in stages}
    rows: list[LineageRow] = []
    for manifest in manifests.values():
        if manifest is not None:
            rows += _lineage_of(manifest, writer, manifests)
    return rows


def _lineage_of(
    manifest: Manifest, writer: Mapping[str, str], manifests: Mapping[str, Manifest | None]
) -> list[LineageRow]:
    rows = []
    for name in sorted(name for name in manifest.inputs if name in writer):
        source = manifests[writer[name]]
        entry = None if source is None else source.entries.get(name)
        same = entry is not None and entry.fingerprint == manifest.inputs[name]
        rows.append(LineageRow(manifest.stage, manifest.key, name, writer[name], same))
    for kind in ("file", "shard"):
        n = sum(name.startswith(f"{kind}:") for name in manifest.inputs)
        if n:
            rows.append(LineageRow(manifest.stage, manifest.key, f"{n:,} {kind}s from outside", None, True))
    return rows
