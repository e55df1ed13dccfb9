"""Run one stage: key, fresh or not, compute what is missing, commit one manifest. Written once for all stages."""

import datetime
import json
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from schemas.annotation import CorpusCount
from schemas.arrow import arrow_schema, rows_of
from schemas.artifacts import Entry, Manifest, RunRecord, ShardRecord
from schemas.config import PipelineConfig, RunOptions
from schemas.rejects import Reject
from trajpilot_core.engine.execution.outcome import Outcome, Peaks, check_ratio, units_lost, watched
from trajpilot_core.engine.execution.reuse import finished_shards, leased, scratch_folder
from trajpilot_core.engine.key import KeyedStage, key_stage, paths_of, rejects_entry, resolve_stage, write_notes
from trajpilot_core.engine.needs import naming_settings, require_room
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.sink import Sink, check_balance, count_codes, joined, write_rejects
from trajpilot_core.engine.stage import AnyStage, Runtime, Source, Work, no_progress
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import Folder, naming_failures, open_folder
from trajpilot_core.store.inventory import UNSTABLE, Inventory, digests, load_inventory, moved, save_inventory
from trajpilot_core.store.lock import GC_WAIT_S, in_use, stage_lock
from trajpilot_core.store.manifest import (
    FORMAT,
    commit_manifest,
    current_manifest,
    entry_of,
    files_of,
    lacking_entries,
    manifest_path,
    missing_files,
    point_to,
    read_manifest,
    ref_of,
    shards_of,
    stage_folder,
    unless_damaged,
    verified_bytes,
)
from trajpilot_core.store.parquet import read_table
from trajpilot_core.store.reading import Inputs

__all__ = ["Outcome", "execute"]
LIBRARIES = ("av", "numpy", "opencv-python-headless", "pyarrow", "safetensors", "scipy", "torch", "transformers")
"""Libraries whose versions a manifest records: they can change the last digit of a result."""


@dataclass(frozen=True)
class ComputeContext:
    """Where and with what a stage is computed."""

    folder: Folder
    inventory: Inventory
    digest_of: Mapping[str, str]
    """Input file -> digest that went into the key."""
    run: RunOptions
    progress: Progress
    forced: bool
    elsewhere: "Elsewhere | None" = None
    """Lets other processes compute shards; None: only this one does."""
    scratch: Path | None = None
    """Private folder of this computation; None: the one named by its key."""


Elsewhere = Callable[[KeyedStage, ComputeContext, tuple[Source, ...]], tuple[Source, ...]]
"""(the stage, its job, pending sources) -> sources left to this process; the shards of all others exist afterwards."""


class Computed(NamedTuple):
    """Result of computing a stage."""

    manifest: Manifest
    """Not yet committed."""
    reused: int
    elsewhere: int
    """Units that other processes computed."""


def execute(
    stage: AnyStage,
    config: PipelineConfig,
    run: RunOptions,
    stages: Mapping[str, AnyStage],
    progress: Progress = no_progress,
    elsewhere: Elsewhere | None = None,
) -> Outcome:
    """Bring a stage up to date and make its output the current one.

    On a local folder one run at a time does so; a second one waits and then reuses the result. On an object store no
    run waits: two runs do the work twice, and one manifest wins. `elsewhere` lets other processes compute shards.

    Raises:
        StoreError: an input is missing or damaged, the stage broke its declaration, or work elsewhere failed.
        InputError: the stage rejects more than RunOptions.max_reject_ratio, or its files change while it runs.
    """
    with in_use(run.root, GC_WAIT_S), stage_lock(run.root, stage.name):
        clock = time.monotonic()
        folder = open_folder(run.root)
        inventory = load_inventory(folder, run.data_root)
        resolved = resolve_stage(folder, stage, config, run, stages)
        digest_of = digests(inventory, paths_of(resolved), workers=run.workers, progress=progress)
        save_inventory(folder, inventory)
        work = key_stage(resolved, digest_of)
        previous = unless_damaged(current_manifest, folder, stage.name)
        removed = 0 if previous is None else len(set(shards_of(previous)) - work.shard_keys.keys())
        usable = usable_manifest(folder, work)
        forced = stage.name in run.force
        if usable is not None and not forced:
            check_ratio(usable, run.max_reject_ratio)
            point_to(folder, stage.name, usable.key)
            return _outcome(folder, stage, usable, work.n_units, 0, removed, clock)
        unusable = usable is None and folder.size(manifest_path(stage.name, work.key)) is not None
        device = resolve_device(run.device) if stage.on_gpu(resolved.config) else "cpu"
        with watched(run, stage.name, device) as peaks:
            done = _compute(work, ComputeContext(folder, inventory, digest_of, run, progress, forced, elsewhere))
        manifest, reused = done.manifest, done.reused
        check_ratio(manifest, run.max_reject_ratio)
        computed = work.n_units - reused
        run_record = _run_record(work, done, removed, clock, peaks)
        write_notes(folder, resolved, manifest.key, digest_of)
        manifest = commit_manifest(folder, manifest, run_record, replace=forced or unusable)
        shutil.rmtree(scratch_folder(run, f"{stage.name}-{work.key[:16]}"), ignore_errors=True)
        return _outcome(folder, stage, manifest, reused, computed, removed, clock)


def usable_manifest(folder: Folder, work: KeyedStage) -> Manifest | None:
    """Return the manifest of a key if it is complete, judging by file sizes; None: compute."""
    stage = work.resolved.stage
    manifest = unless_damaged(read_manifest, folder, stage.name, work.key)
    if manifest is None or missing_files(folder, stage.name, manifest) or lacking_entries(manifest, stage.writes):
        return None
    return manifest


def _run_record(work: KeyedStage, done: Computed, removed: int, clock: float, peaks: Peaks) -> RunRecord:
    seconds, computed = time.monotonic() - clock, work.n_units - done.reused
    written = sum(file.bytes for file in files_of(done.manifest)) * computed // max(1, work.n_units)
    started = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
    return RunRecord(
        reused=done.reused,
        computed=computed,
        removed=removed,
        rejected=units_lost(done.manifest.rejected),
        started=started.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        host=platform.node(),
        rows=sum(entry.rows for _, entry in work.resolved.inputs.entries.values()),
        memory_bytes=None if done.elsewhere or not peaks.memory else peaks.memory,
        gpu_bytes=peaks.gpu,
        disk_bytes=written + peaks.scratch,
    )


def _outcome(
    folder: Folder, stage: AnyStage, manifest: Manifest, reused: int, computed: int, removed: int, clock: float
) -> Outcome:
    counted, base = manifest.entries.get("counts"), stage_folder(stage.name)
    tables = [read_table(verified_bytes(folder, base, file)) for file in (counted.files if counted else ())]
    return Outcome(
        ref=ref_of(folder, manifest),
        reused=reused,
        computed=computed,
        removed=removed,
        rejected=manifest.rejected,
        n_in=manifest.n_in,
        n_out=manifest.n_out,
        seconds=time.monotonic() - clock,
        cached=computed == 0,
        unit=stage.shard_by,
        counts=tuple(row for table in tables for row in rows_of(CorpusCount, table)),
    )


def _compute(work: KeyedStage, job: ComputeContext) -> Computed:
    """Run the stage on what is missing."""
    stage, resolved = work.resolved.stage, work.resolved
    if stage.shard_by is not None:
        return _compute_sharded(work, job)
    require_room(work, job.folder, job.run, 1)
    _refuse_unstable(stage.name, [path for path, digest in job.digest_of.items() if digest.startswith(UNSTABLE)])
    sink = Sink(job.folder, stage.name, stage.writes, work.key)
    with naming_settings(stage):
        stage.run(Work(resolved.inputs, resolved.config, resolved.sources, sink, _runtime(work, job)))
    _refuse_unstable(stage.name, moved(job.inventory, job.digest_of))
    return Computed(_written(work, job.folder, sink), 0, 0)


def _runtime(work: KeyedStage, job: ComputeContext) -> Runtime:
    scratch = job.scratch or scratch_folder(job.run, f"{work.resolved.stage.name}-{work.key[:16]}")
    with naming_failures("make the scratch folder", scratch):
        scratch.mkdir(parents=True, exist_ok=True)
    run = job.run
    return Runtime(run.data_root, resolve_device(run.device), run.workers, scratch, job.progress, run.checkpoint_s)


def _written(work: KeyedStage, folder: Folder, sink: Sink) -> Manifest:
    """Check that a stage has written everything it declares, and build its manifest."""
    stage = work.resolved.stage
    missing = [entry for entry in stage.writes if entry not in sink.entries]
    if missing:
        raise StoreError(f"stage {stage.name} ended without writing {', '.join(missing)}, which Stage.writes declares")
    if sink.counts is None:
        raise StoreError(f"stage {stage.name} ended without calling Sink.count; pass the rows in and out")
    n_in, n_out = sink.counts
    check_balance(f"stage {stage.name}", n_in, n_out, sink.rejects)
    rejects = entry_of("table", [write_rejects(folder, stage.name, work.key, sink.rejects)])
    entries = {**sink.entries, rejects_entry(stage.name): rejects}
    return _manifest(work, entries, n_in, n_out, count_codes(sink.rejects))


def _refuse_unstable(stage: str, changed: Sequence[str]) -> None:
    if changed:
        shown = ", ".join(changed[:5])
        raise InputError(f"{shown} changed while {stage} read it; run again when nothing writes to the corpus")


def _compute_sharded(work: KeyedStage, job: ComputeContext) -> Computed:
    done = {} if job.forced else finished_shards(work, job.folder)
    pending = tuple(source for source in work.resolved.sources if source.shard not in done)
    here = pending
    if pending:
        require_room(work, job.folder, job.run, len(pending))
        if job.elsewhere is not None:
            here = job.elsewhere(work, job, pending)
            done = finished_shards(work, job.folder)
    changed: list[str] = []
    if here:
        sink = compute_shards(work, job, here)
        done, changed = done | sink.shards, sink.changed
    gaps = [source.shard for source in work.resolved.sources if source.shard not in done]
    if gaps:
        shown, name = ", ".join(repr(shard) for shard in gaps[:5]), work.resolved.stage.name
        raise StoreError(f"stage {name}: {len(gaps)} shards assigned to other processes are missing: {shown}")
    if changed:
        now = {path: f"{UNSTABLE}:{time.time_ns()}" for path in changed}
        work = key_stage(work.resolved, {**job.digest_of, **now})  # a key that no later run has
    records = [done[source.shard] for source in work.resolved.sources]
    concludes = work.resolved.stage.conclude is not None
    manifest = _concluded(work, job, records) if concludes else _fold(work, job.folder, records)
    return Computed(manifest, len(records) - len(pending), len(pending) - len(here))


def compute_shards(work: KeyedStage, job: ComputeContext, pending: tuple[Source, ...]) -> Sink:
    """Run a sharded stage on the pending sources; each shard is committed immediately.

    Raises:
        StoreError: the stage ended without a pending shard.
    """
    stage, files = work.resolved.stage, {source.shard: source.files for source in pending}

    def unstable(shard: str) -> list[str]:
        return moved(job.inventory, {path: job.digest_of[path] for path in files[shard]})

    scratch_of: dict[str, Path] = {}

    def delivered(n_done: int) -> None:
        if stage.conclude is None:
            job.progress(n_done, len(pending), f"{stage.shard_by}s")
        for shard in scratch_of.keys() & sink.shards.keys():  # its checkpoints are gigabytes
            shutil.rmtree(scratch_of.pop(shard), ignore_errors=True)

    keys = {shard: work.shard_keys[shard] for shard in files}
    sink = Sink(job.folder, stage.name, stage.writes, work.key, keys, unstable, delivered, whole=False)
    with ExitStack() as leases:
        if stage.conclude is not None:
            for shard, key in keys.items():
                scratch_of[shard] = leases.enter_context(leased(job.run, f"{stage.name}-{key[:16]}"))
        runtime = replace(_runtime(work, job), training_scratch=dict(scratch_of))
        with naming_settings(stage):
            stage.run(Work(work.resolved.inputs, work.resolved.config, pending, sink, runtime))
    missing = sorted(set(files) - set(sink.shards))
    if missing:
        shown = ", ".join(repr(shard) for shard in missing[:5])
        raise StoreError(f"stage {stage.name} ended without {len(missing)} of {len(files)} shards: {shown}")
    return sink


def _fold(work: KeyedStage, folder: Folder, records: list[ShardRecord]) -> Manifest:
    """Build the manifest of a sharded stage from its shard records, in the order of the takes."""
    stage, base = work.resolved.stage, stage_folder(work.resolved.stage.name)
    files = [file for record in records for file in record.rejects.files]
    tables = [read_table(verified_bytes(folder, base, file)) for file in files]
    rejects = rows_of(Reject, pa.concat_tables([arrow_schema(Reject).empty_table(), *tables]))
    entries = {
        stage.writes[0]: entry_of("table", [file for record in records for file in record.entry.files]),
        rejects_entry(stage.name): entry_of("table", [write_rejects(folder, stage.name, work.key, rejects)]),
    }
    n_in, n_out = sum(record.n_in for record in records), sum(record.n_out for record in records)
    return _manifest(work, entries, n_in, n_out, count_codes(rejects))


def _concluded(work: KeyedStage, job: ComputeContext, records: Sequence[ShardRecord]) -> Manifest:
    """Combine the trainings of a stage and let it write the rest."""
    stage, resolved, folder = work.resolved.stage, work.resolved, job.folder
    sink = Sink(folder, stage.name, stage.writes, work.key)
    parts = [{stage.writes[0]: record.entry, **record.further} for record in records]
    for name in {name: None for part in parts for name in part}:
        entries = [part[name] for part in parts if name in part]
        if entries[0].kind == "models":
            sink.written[name] = {file.key: file for entry in entries for file in entry.files if file.key}
            facts = [json.loads(verified_bytes(folder, stage_folder(stage.name), entry.files[0])) for entry in entries]
            sink.about[name] = joined(stage.name, facts)
        else:
            sink.entries[name] = entry_of("table", [file for entry in entries for file in entry.files])
    trained = {
        record.shard: Inputs(folder, stage.name, {name: (stage.name, entry) for name, entry in part.items()})
        for record, part in zip(records, parts, strict=True)
    }
    assert stage.conclude is not None
    with naming_settings(stage):
        stage.conclude(Work(resolved.inputs, resolved.config, resolved.sources, sink, _runtime(work, job), trained))
    return _written(work, folder, sink)


def _manifest(work: KeyedStage, entries: dict[str, Entry], n_in: int, n_out: int, rejected: dict[str, int]) -> Manifest:
    resolved = work.resolved
    return Manifest(
        format=FORMAT,
        stage=resolved.stage.name,
        version=resolved.stage.version,
        key=work.key,
        config=resolved.config.content(),
        inputs=dict(work.inputs),
        entries=entries,
        n_in=n_in,
        n_out=n_out,
        rejected=rejected,
        libraries=dict(_library_versions()),
    )


@cache
def _library_versions() -> Mapping[str, str]:
    installed = {}
    for name in LIBRARIES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed
