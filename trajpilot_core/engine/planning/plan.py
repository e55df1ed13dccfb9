"""Plan and status: what a run would do and what exists, without reading files. Imports neither torch nor Prefect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import removed_shards, usable_manifest
from trajpilot_core.engine.execution.outcome import units_lost
from trajpilot_core.engine.execution.reuse import finished_shards
from trajpilot_core.engine.key import (
    KeyedStage,
    key_stage,
    paths_of,
    producers,
    read_notes,
    resolve_config,
    resolve_stage,
    unit_sources,
)
from trajpilot_core.engine.needs import Needs, expected, rows_read
from trajpilot_core.engine.order import selected_of
from trajpilot_core.engine.planning.staleness import UNREAD, Units, WantedOutput, diff, flat
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import Folder, open_folder
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
from trajpilot_core.store.reading import keys_of

Freshness = Literal["fresh", "stale", "missing", "unknown"]
CountBound = Literal["exactly", "at most", "unknown"]


@dataclass(frozen=True)
class PlanRow:
    """What a run would do with one stage. A unit is a shard, or the whole stage where it is not sharded."""

    stage: str
    state: Freshness
    """`unknown`: fresh or stale, depending on a stage before it."""
    why: str
    compute: int | None
    """Units to compute; None where that is not known yet."""
    bound: CountBound
    """Kind of bound that `compute` is."""
    removed: int | None
    """Units of the current output that a new one would not have; None where that is not known yet."""
    reused: int | None = None
    """Units that exist already; a lower bound where `compute` is an upper one."""
    rejected: int | None = None
    """Rows lost in the reused units; computed ones may lose more."""
    asked: bool = True
    """The run includes this stage (--only, --from)."""
    needs: Needs | None = None
    """Expected needs; None: nothing is computed, or the amount is unknown, or the stage never ran here."""
    current: Manifest | None = field(default=None, repr=False)
    """The current output."""

    def work(self) -> str:
        """Return the amount of work in words."""
        return "unknown" if self.compute is None else f"{self.bound} {self.compute:,}"


@dataclass(frozen=True)
class PlanContext:
    """Shared by the rows of one plan; every manifest is read once."""

    folder: Folder
    inventory: Inventory
    stages: Mapping[str, AnyStage]
    config: PipelineConfig
    run: RunOptions
    writer: Mapping[str, str]
    outputs: dict[str, Manifest | None] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    notes: dict[str, Units] = field(default_factory=dict)

    def known(self, path: str) -> str:
        """Return the digest of an input file, UNREAD where only reading would show it; each is looked at once."""
        if path not in self.digests:
            self.digests[path] = self.inventory.known(path) or UNREAD
        return self.digests[path]

    def current(self, folder: Folder, stage: str) -> Manifest | None:
        """Return the current output of a stage; StoreError where it is damaged."""
        if stage not in self.outputs:
            self.outputs[stage] = current_manifest(folder, stage)
        return self.outputs[stage]

    def noted(self, current: Manifest) -> Units:
        """Return what the units of an output were made from; empty where that was not noted."""
        if current.stage not in self.notes:
            self.notes[current.stage] = read_notes(self.folder, current.stage, current.key)
        return self.notes[current.stage]

    def reasons(
        self, stage: AnyStage, current: Manifest, waits: Sequence[str] = (), units: Units | None = None
    ) -> list[str]:
        """Return why an output is not fresh (see `wanted`)."""
        return [*diff(self.folder, current, self.noted(current), self.wanted(stage, waits, units))]

    def wanted(self, stage: AnyStage, waits: Sequence[str] = (), units: Units | None = None) -> WantedOutput:
        """Return what a run would make of a stage, as far as that is known while it waits for the stages `waits`."""
        config = resolve_config(stage, self.config, self.run).content()
        producers = {}
        for name in stage.reads:
            writer = self.writer.get(name)
            output = None if writer is None or writer in waits else _current(self, writer)[0]
            if output is not None and name in output.entries:
                producers[name] = output
        return WantedOutput(stage, config, producers, self.known, units)


def plan(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> list[PlanRow]:
    """Report for every stage, in order, whether it is fresh, and if not why and how much there is to compute.

    Args:
        stages: all stages by name, producers before their readers.
        config: what would be computed.
        run: where; `force` counts as work, `only` and `from_stage` select stages.

    Raises:
        StoreError: the root cannot be opened, or two stages write one entry.
        InputError: a selected stage does not exist.
    """
    chosen = selected_of(stages, run)
    folder = open_folder(run.root)
    inventory = load_inventory(folder, run.data_root)
    context = PlanContext(folder, inventory, stages, config, run, producers(stages))
    rows: dict[str, PlanRow] = {}
    for stage in (declared.under(config) for declared in stages.values()):
        before = dict.fromkeys(context.writer[name] for name in stage.reads if name in context.writer)
        waits = [name for name in before if name not in rows or (rows[name].state != "fresh" and rows[name].asked)]
        row = _waiting(context, stage, waits) if waits else _ready(context, stage)
        rows[stage.name] = replace(row, asked=stage.name in chosen)
    return list(rows.values())


def _waiting(context: PlanContext, stage: AnyStage, waits: Sequence[str]) -> PlanRow:
    """Report what is certain about a stage whose inputs from the stages `waits` a run would recompute."""
    current, damage = _current(context, stage.name)
    forced, whole = stage.name in context.run.force, stage.shard_by is None
    certain = [*_forced(context, stage), *damage]
    if current is not None:
        certain += context.reasons(stage, current, waits)
    state: Freshness = "missing" if current is None and not damage else "stale" if certain else "unknown"
    compute = 1 if whole else None
    needs = None if compute is None else _needs(context, stage, compute)
    bound: CountBound = "unknown" if compute is None else "exactly" if forced else "at most"
    why, removed = "; ".join([*certain, f"unknown until {waits[0]} has run"]), 0 if whole or current is None else None
    return PlanRow(stage.name, state, why, compute, bound, removed, needs=needs, current=current)


def _needs(context: PlanContext, stage: AnyStage, compute: int) -> Needs | None:
    outputs = [output for output in context.outputs.values() if output is not None]
    entries = {name: entry for output in outputs for name, entry in output.entries.items()}
    return expected(context.folder, stage, rows_read(stage.reads, entries), compute) if compute else None


def _current(context: PlanContext, stage: str) -> tuple[Manifest | None, list[str]]:
    try:
        return context.current(context.folder, stage), []
    except StoreError as error:
        return None, [str(error)]


def _forced(context: PlanContext, stage: AnyStage) -> list[str]:
    return ["forced"] if stage.name in context.run.force else []


def _ready(context: PlanContext, stage: AnyStage) -> PlanRow:
    """Compare a stage whose inputs exist with its output."""
    (current, damage), forced = _current(context, stage.name), _forced(context, stage)
    if current is not None and not forced and _same(context, stage, current):
        return _fresh(stage, current)
    state: Freshness = "missing" if current is None and not damage else "stale"
    try:
        resolved = resolve_stage(context.folder, stage, context.config, context.run, context.stages, context.current)
    except (StoreError, InputError) as error:
        known = [] if current is None else context.reasons(stage, current)
        why = "; ".join([*forced, *damage, *known, str(error)])
        removed = 0 if stage.shard_by is None or current is None else None
        return PlanRow(stage.name, state, why, None, "unknown", removed, current=current)
    digest_of = {path: context.known(path) for path in paths_of(resolved)}
    work = key_stage(resolved, digest_of)
    unread = {path for path, digest in digest_of.items() if digest == UNREAD}
    same = not forced and not unread and current is not None and current.key == work.key
    if same and current is not None and _is_whole(context.folder, stage, current):
        return _fresh(stage, current)
    causes = damage or ["never ran"]
    if current is not None:
        units = {source.shard: unit_sources(source, digest_of) for source in resolved.sources}
        causes = context.reasons(stage, current, units=units)
    return _stale(context, work, current, state, unread, forced + causes)


def _same(context: PlanContext, stage: AnyStage, current: Manifest) -> bool:
    """Return whether a stage is certain to be fresh without its sources being resolved again.

    True only where they depend on inputs and settings alone and these are unchanged; the noted files are checked.
    """
    wanted = context.wanted(stage)
    notes = context.noted(current) if stage.pure_sources else {}
    if not notes or len(wanted.producers) < len(stage.reads):
        return False
    spelled = {value for value in flat(wanted.config).values() if isinstance(value, str)}
    absolute = {path for unit in notes.values() for path in unit.files if path.startswith("/")}
    # a relative path in a setting leads elsewhere from another working folder
    return absolute <= spelled and not any(diff(context.folder, current, notes, wanted))


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
        why = [*why, "an earlier output matches" if is_whole else "all shards exist, only the manifest is rewritten"]
    needs = _needs(context, work.resolved.stage, n_units - done)
    # a touched file may prove unchanged, and so match what the stage finished before
    finished = keys_of(context.folder, name) or context.folder.names(f"{stage_folder(name)}/{SHARDS}")
    bound: CountBound = "at most" if unread and not forced and finished else "exactly"
    text = "; ".join(why) or "inputs changed"
    return PlanRow(name, state, text, n_units - done, bound, removed, done, lost, needs=needs, current=current)


def _done(folder: Folder, work: KeyedStage, unread: set[str]) -> tuple[int, int]:
    """Return the number of units that exist already, and the rows that were lost in them."""
    manifest = None if unread else usable_manifest(folder, work)
    if manifest is not None:
        return work.n_units, units_lost(manifest.rejected)
    if work.resolved.stage.shard_by is None:
        return 0, 0
    touched = {source.shard for source in work.resolved.sources if not unread.isdisjoint(source.files)}
    done = {shard: record for shard, record in finished_shards(work, folder).items() if shard not in touched}
    return len(done), sum(units_lost(record.rejected) for record in done.values())


@dataclass(frozen=True)
class StatusRow:
    """The state of one stage."""

    plan: PlanRow
    rows: int | None
    """Rows of the current output; None where there is none."""
    rejected: int | None
    started: str | None
    """When it was computed, ISO 8601 in UTC."""
    seconds: float | None
    uri: str | None


def status(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> list[StatusRow]:
    """Return the state of every stage, in order; sizes and times of files are checked, files are not read."""
    folder = open_folder(run.root)
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
