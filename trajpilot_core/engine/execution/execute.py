"""Run one stage: key, fresh or not, compute what is missing, commit. Written once for all stages."""

import datetime
import platform
import shutil
import time
from collections.abc import Mapping

from schemas.annotation import CorpusCount
from schemas.arrow import rows_of
from schemas.artifacts import Manifest, RunRecord
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.compute import ComputeContext, Computed, Elsewhere, compute
from trajpilot_core.engine.execution.outcome import Outcome, Peaks, check_ratio, units_lost, watched
from trajpilot_core.engine.execution.reuse import scratch_folder
from trajpilot_core.engine.key import KeyedStage, key_stage, paths_of, resolve_stage, write_notes
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.stage import AnyStage, no_progress
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.inventory import digests, load_inventory, save_inventory
from trajpilot_core.store.lock import GC_WAIT_S, in_use, stage_lock
from trajpilot_core.store.manifest import (
    commit_manifest,
    current_manifest,
    files_of,
    lacking_entries,
    manifest_path,
    missing_files,
    point_to,
    read_manifest,
    ref_of,
    stage_folder,
    unless_damaged,
    verified_file,
)
from trajpilot_core.store.parquet import read_table

__all__ = ["Outcome", "execute"]
COUNTS = "counts"
"""Entry of counts that are shown with those of the stage (schemas/annotation.py: CorpusCount)."""


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
    run waits: two runs do the work twice, and one manifest wins.

    Args:
        stage: what to run.
        config: what is computed.
        run: where and how.
        stages: all stages by name, to find who writes the inputs.
        progress: called with (done, total, what).
        elsewhere: lets other processes compute shards; None: only this one does.

    Raises:
        StoreError: an input is missing or damaged, the stage broke its declaration, or work elsewhere failed.
        InputError: the stage rejects more than RunOptions.max_reject_ratio, or its files change while it runs.
    """
    with in_use(run.root, GC_WAIT_S, run.protocols), stage_lock(run.root, stage.name, run.protocols):
        return _execute(stage, config, run, stages, progress, elsewhere)


def _execute(
    stage: AnyStage,
    config: PipelineConfig,
    run: RunOptions,
    stages: Mapping[str, AnyStage],
    progress: Progress,
    elsewhere: Elsewhere | None,
) -> Outcome:
    clock = time.monotonic()
    folder = open_folder(run.root, run.protocols)
    inventory = load_inventory(folder, run.data_root, run.protocols)
    resolved = resolve_stage(folder, stage, config, run, stages)
    digest_of = digests(inventory, paths_of(resolved), workers=run.workers, rehash=run.rehash, progress=progress)
    save_inventory(folder, inventory)
    work = key_stage(resolved, digest_of)
    removed = removed_shards(unless_damaged(current_manifest, folder, stage.name), work)
    usable = usable_manifest(folder, work)
    forced = stage.name in run.force
    if usable is not None and not forced:
        check_ratio(usable, run.max_reject_ratio)
        point_to(folder, stage.name, usable.key)
        return _outcome(folder, stage, usable, work.n_units, 0, removed, clock)
    unusable = usable is None and folder.size(manifest_path(stage.name, work.key)) is not None
    device = resolve_device(run.device) if stage.on_gpu(resolved.config) else "cpu"
    with watched(run, stage.name, device) as peaks:
        done = compute(work, ComputeContext(folder, inventory, digest_of, run, progress, forced, elsewhere))
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


def removed_shards(previous: Manifest | None, work: KeyedStage) -> int:
    """Return how many shards of the previous output this one no longer has."""
    if previous is None:
        return 0
    before = {name for name in previous.inputs if name.startswith("shard:")}
    return len(before - set(work.inputs))


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


def _counts(folder: Folder, manifest: Manifest) -> tuple[CorpusCount, ...]:
    """Read the counts that a stage wrote for comparison with the paper's; none where it writes none."""
    entry = manifest.entries.get(COUNTS)
    files = () if entry is None else entry.files
    base = stage_folder(manifest.stage)
    return tuple(row for file in files for row in rows_of(CorpusCount, read_table(verified_file(folder, base, file))))


def _outcome(
    folder: Folder, stage: AnyStage, manifest: Manifest, reused: int, computed: int, removed: int, clock: float
) -> Outcome:
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
        counts=_counts(folder, manifest),
    )
