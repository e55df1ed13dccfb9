"""Groups of shards of a stage, computed by several processes, here or on other machines.

Takes form groups of about equal amounts of video; a training is a group. Only the store decides: a group is
done when each of its shards is committed, whatever its run reports. Only the parent run writes the manifest. Reasons:
docs/decisions/fan-out.md.
"""

import heapq
import math
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from schemas.artifacts import ShardGroup
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import ComputeContext, compute_shards
from trajpilot_core.engine.execution.outcome import units_lost
from trajpilot_core.engine.execution.reuse import finished_shards, scratch_folder
from trajpilot_core.engine.key import KeyedStage, key_stage, paths_of, resolve_stage
from trajpilot_core.engine.needs import require_room
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.stage import AnyStage, Source, no_progress
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.inventory import digests, load_inventory, moved
from trajpilot_core.store.lock import GC_WAIT_S, in_use
from trajpilot_core.store.manifest import shard_path


@dataclass(frozen=True)
class GroupOutcome:
    """Result of computing a group, in shards."""

    reused: int
    computed: int
    rejected: int
    """Rows lost in the computed shards."""
    seconds: float

    def message(self) -> str:
        """Return the counts in words."""
        return f"reused {self.reused:,}, computed {self.computed:,}, rejected {self.rejected:,}"


def balance(video_s: Mapping[str, float], target_s: float) -> list[list[str]]:
    """Split takes into groups of about `target_s` seconds of video, the longest take first to the lightest group.

    A longer take forms its own group, and those come first.
    """
    order = sorted(video_s, key=lambda take: (-video_s[take], take))
    long = [take for take in order if video_s[take] > target_s]
    rest = order[len(long) :]
    wanted = max(1, math.ceil(sum(video_s[take] for take in rest) / target_s))
    groups: list[list[str]] = [[] for _ in range(min(wanted, len(rest)))]
    loads = [(0.0, number) for number in range(len(groups))]
    for take in rest:
        load, number = heapq.heappop(loads)
        groups[number].append(take)
        heapq.heappush(loads, (load + video_s[take], number))
    return [[take] for take in long] + groups


def share_out(
    work: KeyedStage, job: ComputeContext, pending: tuple[Source, ...], target_s: float
) -> tuple[ShardGroup, ...]:
    """Prepare pending shards for other processes, and return them in groups; empty where that makes one group.

    A group of takes has about `target_s` seconds of video.
    """
    stage = work.resolved.stage
    if not stage.is_shared_out or stage.shard_by is None:
        return ()
    weigh, names = stage.video_s, [source.shard for source in pending]
    video_s = {} if weigh is None else {source.shard: weigh(source) for source in pending}
    split = balance(video_s, target_s) if video_s else [[name] for name in names]
    if len(split) < 2:
        return ()
    for name in names:  # so that an existing marker proves that its shard was recomputed
        job.folder.remove(shard_path(stage.name, work.shard_keys[name]))
    return tuple(
        ShardGroup(
            stage=stage.name,
            version=stage.version,
            number=number,
            of=len(split),
            unit=stage.shard_by,
            shards={name: work.shard_keys[name] for name in sorted(group)},
            video_s=round(sum(video_s[name] for name in group), 3) if video_s else None,
        )
        for number, group in enumerate(split, start=1)
    )


def handed(work: KeyedStage, job: ComputeContext, config: PipelineConfig) -> tuple[PipelineConfig, RunOptions]:
    """Return settings and options with which every process computes the same shards as this one.

    `auto` is resolved, and paths are absolute.
    """
    stage, run = work.resolved.stage, job.run
    return config.replace(**{stage.section: work.resolved.config}), run.replace(
        root=job.folder.url,
        data_root=job.inventory.root.url() if run.data_root else "",
        device=resolve_device(run.device) if stage.on_gpu(work.resolved.config) else "cpu",
        group_video_s=None,
        only=(),
        from_stage=None,
        force=(),
    )


def made(folder: Folder, group: ShardGroup) -> int:
    """Return how many shards of a group are committed; reads no file."""
    return sum(folder.size(shard_path(group.stage, key)) is not None for key in group.shards.values())


def unfinished(work: KeyedStage, job: ComputeContext, shards: Mapping[str, str]) -> tuple[str, ...]:
    """Return the missing shards whose input files have not changed since the parent run began.

    A take whose file changed is not counted: the parent run writes its reject.
    """
    narrow = _narrow(work, frozenset(shards))
    done = finished_shards(narrow, job.folder)
    left = [source for source in narrow.resolved.sources if source.shard not in done]
    return tuple(s.shard for s in left if not moved(job.inventory, {path: job.digest_of[path] for path in s.files}))


def _narrow(work: KeyedStage, shards: frozenset[str]) -> KeyedStage:
    sources = tuple(source for source in work.resolved.sources if source.shard in shards)
    keys = {source.shard: work.shard_keys[source.shard] for source in sources}
    return replace(work, resolved=replace(work.resolved, sources=sources), shard_keys=keys)


def compute_group(
    config: PipelineConfig,
    run: RunOptions,
    stages: Mapping[str, AnyStage],
    group: ShardGroup,
    progress: Progress = no_progress,
) -> GroupOutcome:
    """Compute and commit the shards of a group; no manifest is written, and the current output stays.

    `config` and `run` are those of `handed`. Shards that exist already are skipped.

    Raises:
        InputError: stage, settings or files differ from those of the parent run; names the shards. Those that agree
            are computed first.
        StoreError: an input is missing, or the disk failed.
    """
    clock, stage = time.monotonic(), stages[group.stage]
    if stage.version != group.version:
        raise InputError(
            f"stage {stage.name} has version {stage.version} here but {group.version} in the parent run; bring both "
            "checkouts to the same state and run again"
        )
    with in_use(run.root, GC_WAIT_S):
        folder = open_folder(run.root)
        inventory = load_inventory(folder, run.data_root)
        resolved = resolve_stage(folder, stage, config, run, stages)
        resolved = replace(
            resolved, sources=tuple(source for source in resolved.sources if source.shard in group.shards)
        )
        digest_of = digests(inventory, paths_of(resolved), workers=run.workers)
        work = key_stage(resolved, digest_of)
        same = frozenset(shard for shard, key in work.shard_keys.items() if group.shards[shard] == key)
        scratch = scratch_folder(run, f"{stage.name}-{secrets.token_hex(8)}")
        job = ComputeContext(folder, inventory, digest_of, run, progress, forced=False, scratch=scratch)
        outcome = _compute_missing(_narrow(work, same), job, clock)
        if len(same) < len(group.shards):
            differ = sorted(set(group.shards) - same)
            raise InputError(
                f"{group.stage}: {len(differ)} of {len(group.shards)} {group.unit}s differ from those of the parent "
                f"run: {', '.join(differ[:5])}; root and corpus must be the same folders for every worker"
            )
    return outcome


def _compute_missing(work: KeyedStage, job: ComputeContext, clock: float) -> GroupOutcome:
    done = finished_shards(work, job.folder)
    pending = tuple(source for source in work.resolved.sources if source.shard not in done)
    lost = 0
    if pending:
        require_room(work, job.folder, job.run, len(pending))
        try:
            sink = compute_shards(work, job, pending)
        finally:
            if job.scratch is not None:
                shutil.rmtree(job.scratch, ignore_errors=True)
        lost = sum(units_lost(record.rejected) for record in sink.shards.values())
    return GroupOutcome(len(done), len(pending), lost, time.monotonic() - clock)


def gather(
    work: KeyedStage,
    job: ComputeContext,
    pending: tuple[Source, ...],
    groups: tuple[ShardGroup, ...],
    reasons: Mapping[int, str],
) -> tuple[Source, ...]:
    """Return the sources left to the parent run; fail while a group is not done.

    A failure elsewhere must be seen, not repaired silently. Only takes whose files changed meanwhile are left.
    `reasons` has why a group failed, by its number.

    Raises:
        StoreError: a group failed; names groups, unfinished shards and reasons.
    """
    left = {group.number: unfinished(work, job, group.shards) for group in groups}
    unit = work.resolved.stage.shard_by
    bad = [
        f"group {number} ({len(names)} {unit}s unfinished, e.g. {names[0]}): {reasons.get(number, 'no reason known')}"
        for number, names in left.items()
        if names
    ]
    if bad:
        raise StoreError(
            f"stage {work.resolved.stage.name}: {len(bad)} of {len(groups)} groups failed; finished shards are kept, "
            f"run again: {'; '.join(bad)}"
        )
    done = finished_shards(_narrow(work, frozenset(source.shard for source in pending)), job.folder)
    return tuple(source for source in pending if source.shard not in done)
