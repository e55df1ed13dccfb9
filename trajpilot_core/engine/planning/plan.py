"""What a run would do, and what is there: from looks alone, files are not read. Imports neither torch nor Prefect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import removed_shards, usable_manifest
from trajpilot_core.engine.execution.outcome import units_lost
from trajpilot_core.engine.execution.shard_reuse import finished_shards
from trajpilot_core.engine.key import KeyedStage, key_stage, paths_of, producers, resolve_stage
from trajpilot_core.engine.needs import Needs, expected, rows_read
from trajpilot_core.engine.order import selected_of
from trajpilot_core.engine.planning.differences import flat
from trajpilot_core.engine.planning.staleness import (
    UNREAD,
    gone_reasons,
    noted_reasons,
    own_reasons,
    reasons,
    settled_reasons,
)
from trajpilot_core.engine.provenance import read_notes
from trajpilot_core.engine.resolve import resolve_config
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.history import keys_of
from trajpilot_core.store.inventory import Inventory, load_inventory
from trajpilot_core.store.manifest import (
    SHARDS,
    current_manifest,
    lacking_entries,
    manifest_path,
    missing_files,
    read_run_record,
    stage_folder,
    unless_damaged,
)

Freshness = Literal["fresh", "stale", "missing", "unknown"]
CountBound = Literal["exactly", "at most", "unknown"]


@dataclass(frozen=True)
class PlanRow:
    """What a run would do with one stage. A unit is a shard, or the whole stage where it is not sharded."""

    stage: str
    state: Freshness
    """`unknown`: fresh or stale, a stage before it decides."""
    why: str
    compute: int | None
    """Units to compute, None where that is not known yet."""
    bound: CountBound
    """Of `compute`."""
    removed: int | None
    """Units of the output that counts which are no longer asked for; None where that is not known yet."""
    reused: int | None = None
    """Units that are there already; at least so many where `compute` is at most."""
    rejected: int | None = None
    """Rows lost in the units that are reused; what is computed may lose more."""
    asked: bool = True
    """The run asks for this stage (--only, --from)."""
    needs: Needs | None = None
    """What computing it will take; None: nothing is computed, or nobody knows how much, or it never ran here."""
    current: Manifest | None = field(default=None, repr=False)
    """The output that counts, as it was found."""

    def work(self) -> str:
        """Return the amount of work as people read it."""
        return "unknown" if self.compute is None else f"{self.bound} {self.compute:,}"


@dataclass(frozen=True)
class PlanContext:
    """What the rows of one plan share; every manifest is read once."""

    folder: Folder
    inventory: Inventory
    stages: Mapping[str, AnyStage]
    config: PipelineConfig
    run: RunOptions
    writer: Mapping[str, str]
    seen: dict[str, Manifest | None] = field(default_factory=dict)
    looked_at: dict[str, str | None] = field(default_factory=dict)

    def known(self, path: str) -> str | None:
        """Return the digest of an input file, None where only reading would show it; each is looked at once."""
        if path not in self.looked_at:
            self.looked_at[path] = self.inventory.known(path)
        return self.looked_at[path]

    def current(self, folder: Folder, stage: str) -> Manifest | None:
        """Return the output of a stage that counts; StoreError where it is damaged."""
        if stage not in self.seen:
            self.seen[stage] = current_manifest(folder, stage)
        return self.seen[stage]


def plan(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> list[PlanRow]:
    """Report for every stage, in order, whether it is fresh, and if not why and how much is to compute.

    Args:
        stages: all stages by name, producers before their readers.
        config: what would be computed.
        run: where; `force` counts as work, `only` and `from_stage` say what is asked for.

    Raises:
        StoreError: the root cannot be opened, or two stages write one entry.
        InputError: a stage that is asked for is none.
    """
    asked = selected_of(stages, run)
    folder = open_folder(run.root, run.protocols)
    inventory = load_inventory(folder, run.data_root, run.protocols)
    context = PlanContext(folder, inventory, stages, config, run, producers(stages))
    rows: dict[str, PlanRow] = {}
    for stage in (declared.under(config) for declared in stages.values()):
        before = dict.fromkeys(context.writer[name] for name in stage.reads if name in context.writer)
        waits = [name for name in before if name not in rows or (rows[name].state != "fresh" and rows[name].asked)]
        found = _waiting(context, stage, waits) if waits else _ready(context, stage)
        rows[stage.name] = replace(found, asked=stage.name in asked)
    return list(rows.values())


def _waiting(context: PlanContext, stage: AnyStage, waits: Sequence[str]) -> PlanRow:
    """State what is certain of a stage some of whose inputs a run would recompute: those of the stages `waits`."""
    current, damage = _current(context, stage)
    forced, whole = stage.name in context.run.force, stage.shard_by is None
    sure = [*_forced(context, stage), *damage, *_own(context, stage, current)]
    if current is not None:
        sure += noted_reasons(context.folder, current, stage.shard_by, context.known)
        sure += settled_reasons(current, _settled(context, stage, waits))
    state: Freshness = "missing" if current is None and not damage else "stale" if sure else "unknown"
    compute = 1 if whole else None
    needs = None if compute is None else _needs(context, stage, compute)
    bound: CountBound = "unknown" if compute is None else "exactly" if forced else "at most"
    why, removed = "; ".join([*sure, f"unknown until {waits[0]} ran"]), 0 if whole or current is None else None
    return PlanRow(stage.name, state, why, compute, bound, removed, needs=needs, current=current)


def _needs(context: PlanContext, stage: AnyStage, compute: int) -> Needs | None:
    outputs = [output for output in context.seen.values() if output is not None]
    entries = {name: entry for output in outputs for name, entry in output.entries.items()}
    return expected(context.folder, stage, rows_read(stage.reads, entries), compute) if compute else None


def _current(context: PlanContext, stage: AnyStage) -> tuple[Manifest | None, list[str]]:
    try:
        return context.current(context.folder, stage.name), []
    except StoreError as error:
        return None, [str(error)]


def _settled(context: PlanContext, stage: AnyStage, waits: Sequence[str]) -> dict[str, str]:
    """Return the fingerprints of those inputs that a run would leave as they are."""
    found: dict[str, str] = {}
    for name in stage.reads:
        writer = context.writer.get(name)
        source = None if writer is None or writer in waits else _current(context, context.stages[writer])[0]
        if source is not None and name in source.entries:
            found[name] = source.entries[name].fingerprint
    return found


def _forced(context: PlanContext, stage: AnyStage) -> list[str]:
    return ["forced"] if stage.name in context.run.force else []


def _own(context: PlanContext, stage: AnyStage, current: Manifest | None) -> list[str]:
    if current is None:
        return []
    own = resolve_config(stage, context.config, context.run).content()
    return own_reasons(current, stage.version, own) + gone_reasons(context.folder, current, stage.writes)


def _ready(context: PlanContext, stage: AnyStage) -> PlanRow:
    """Compare a stage whose inputs are there with its output."""
    current, damage = _current(context, stage)
    if current is not None and stage.name not in context.run.force and _same(context, stage, current):
        return _fresh(stage, current)
    state: Freshness = "missing" if current is None and not damage else "stale"
    try:
        resolved = resolve_stage(context.folder, stage, context.config, context.run, context.stages, context.current)
    except (StoreError, InputError) as error:
        why = "; ".join([*_forced(context, stage), *damage, *_own(context, stage, current), str(error)])
        removed = 0 if stage.shard_by is None or current is None else None
        return PlanRow(stage.name, state, why, None, "unknown", removed, current=current)
    digest_of = {path: context.known(path) or UNREAD for path in paths_of(resolved)}
    work = key_stage(resolved, digest_of)
    unread = {path for path, digest in digest_of.items() if digest == UNREAD}
    forced = _forced(context, stage)
    same = not forced and not unread and current is not None and current.key == work.key
    if same and current is not None and _is_whole(context.folder, stage, current):
        return _fresh(stage, current)
    causes = damage or ["never ran"]
    if current is not None:
        causes = reasons(context.folder, current, work, digest_of, context.writer)
    return _stale(context, work, current, state, unread, forced + causes)


def _same(context: PlanContext, stage: AnyStage, current: Manifest) -> bool:
    """Return whether a stage is sure to be fresh without working out its sources again; False: find out.

    Holds where they rest on inputs and settings alone and these are the same; their files are looked at as noted.
    """
    own = resolve_config(stage, context.config, context.run).content()
    notes = read_notes(context.folder, stage.name, current.key) if stage.pure_sources else {}
    if not notes or current.version != stage.version or current.config != own:
        return False
    for name in stage.reads:
        try:
            source = context.current(context.folder, context.writer[name])
        except (StoreError, KeyError):
            return False
        if source is None or name not in source.entries or source.entries[name].fingerprint != current.inputs.get(name):
            return False
    files = {path: digest for unit in notes.values() for path, digest in unit.files.items()}
    spelled = {value for value in flat(own).values() if isinstance(value, str)}
    elsewhere = {path for path in files if path.startswith("/")} - spelled  # from the folder that a run began in
    same = not elsewhere and all(context.known(path) == digest for path, digest in files.items())
    return same and _is_whole(context.folder, stage, current)


def _is_whole(folder: Folder, stage: AnyStage, current: Manifest) -> bool:
    """Return whether an output has all entries that the stage writes now, and all their files."""
    return not lacking_entries(current, stage.writes) and not missing_files(folder, stage.name, current)


def _fresh(stage: AnyStage, current: Manifest) -> PlanRow:
    n_units = 1 if stage.shard_by is None else sum(name.startswith("shard:") for name in current.inputs)
    lost = units_lost(current.rejected)
    return PlanRow(current.stage, "fresh", "nothing changed", 0, "exactly", 0, n_units, lost, current=current)


def _stale(
    context: PlanContext, work: KeyedStage, current: Manifest | None, state: Freshness, unread: set[str], why: list[str]
) -> PlanRow:
    """Count what a stage that is not fresh would reuse and compute."""
    name, n_units = work.resolved.stage.name, work.n_units
    forced = name in context.run.force
    done, lost = (0, 0) if forced else _done(context.folder, work, unread)
    removed = removed_shards(current, work)
    if done == n_units:
        is_whole = work.resolved.stage.shard_by is None
        why = [*why, "an output of before fits" if is_whole else "a run only puts it together again"]
    needs = _needs(context, work.resolved.stage, n_units - done)
    # a touched file could turn out to fit what the stage finished before
    finished = keys_of(context.folder, name) or context.folder.names(f"{stage_folder(name)}/{SHARDS}")
    bound: CountBound = "at most" if unread and not forced and finished else "exactly"
    text = "; ".join(why)
    return PlanRow(name, state, text, n_units - done, bound, removed, done, lost, needs=needs, current=current)


def _done(folder: Folder, work: KeyedStage, unread: set[str]) -> tuple[int, int]:
    """Return the units that are there already, and the rows that were lost in them."""
    found = None if unread else usable_manifest(folder, work)
    if found is not None:
        return work.n_units, units_lost(found.rejected)
    if work.resolved.stage.shard_by is None:
        return 0, 0
    touched = {source.shard for source in work.resolved.sources if not unread.isdisjoint(source.files)}
    done = {shard: record for shard, record in finished_shards(work, folder).items() if shard not in touched}
    return len(done), sum(units_lost(record.rejected) for record in done.values())


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
