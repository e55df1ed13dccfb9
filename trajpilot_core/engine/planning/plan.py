"""Plan and status: what a run would do and what exists, without reading files. Imports neither torch nor Prefect."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import usable_manifest
from trajpilot_core.engine.execution.outcome import units_lost
from trajpilot_core.engine.execution.reuse import finished_shards
from trajpilot_core.engine.key import KeyedStage, key_stage, paths_of, producers, resolve_config, resolve_stage
from trajpilot_core.engine.needs import Needs, expected, rows_read
from trajpilot_core.engine.planning.staleness import reasons
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.inventory import Inventory, load_inventory
from trajpilot_core.store.manifest import (
    SHARDS,
    current_manifest,
    manifest_path,
    read_run_record,
    stage_folder,
    unless_damaged,
)
from trajpilot_core.store.reading import keys_of

UNREAD = "unread"
"""In place of the digest of a file that was touched since it was read; only reading it would show a change."""
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
    reused: int | None = None
    """Units that exist already; a lower bound where `compute` is an upper one."""
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

    def current(self, folder: Folder, stage: str) -> Manifest | None:
        """Return the current output of a stage; StoreError where it is damaged."""
        if stage not in self.outputs:
            self.outputs[stage] = current_manifest(folder, stage)
        return self.outputs[stage]

    def reasons(self, stage: AnyStage, current: Manifest, waits: Sequence[str] = ()) -> list[str]:
        """Return why an output is not fresh, as far as that is known while its stage waits for the stages `waits`."""
        config = resolve_config(stage, self.config, self.run).content()
        inputs = {}
        for name in stage.reads:
            writer = self.writer.get(name)
            output = None if writer is None or writer in waits else _current(self, writer)[0]
            if output is not None and name in output.entries:
                inputs[name] = output.entries[name].fingerprint
        return [*reasons(self.folder, current, stage, config, inputs)]


def selected_of(stages: Iterable[str], run: RunOptions) -> list[str]:
    """Return the names of the stages that `run` selects, in order; forcing a stage does not select it.

    Raises:
        InputError: a name is not a stage, or the options contradict each other.
    """
    names = list(stages)
    if run.only and run.from_stage:
        raise InputError(f"only {', '.join(run.only)} and from {run.from_stage} exclude each other; give one of them")
    requested = [*run.only, *run.force, *([run.from_stage] if run.from_stage else [])]
    unknown = sorted(set(requested) - set(names))
    if unknown:
        raise InputError(f"this run has no {', '.join(unknown)}; its stages are {', '.join(names)}")
    chosen = [name for name in names if name in run.only] if run.only else names
    if run.from_stage:
        chosen = names[names.index(run.from_stage) :]
    idle = [name for name in run.force if name not in chosen]
    if idle:
        raise InputError(f"force {', '.join(idle)}: this run includes only {', '.join(chosen)}; select it, too")
    return chosen


def plan(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> list[PlanRow]:
    """Report for every stage, in order, whether it is fresh, and if not why and how much there is to compute.

    In `stages` producers come before their readers. A forced stage counts as work.

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
    forced = stage.name in context.run.force
    certain = [*(["forced"] if forced else []), *damage]
    if current is not None:
        certain += context.reasons(stage, current, waits)
    state: Freshness = "missing" if current is None and not damage else "stale" if certain else "unknown"
    compute = 1 if stage.shard_by is None else None
    needs = None if compute is None else _needs(context, stage, compute)
    bound: CountBound = "unknown" if compute is None else "exactly" if forced else "at most"
    why = "; ".join([*certain, f"unknown until {waits[0]} has run"])
    return PlanRow(stage.name, state, why, compute, bound, needs=needs, current=current)


def _needs(context: PlanContext, stage: AnyStage, compute: int) -> Needs | None:
    outputs = [output for output in context.outputs.values() if output is not None]
    entries = {name: entry for output in outputs for name, entry in output.entries.items()}
    return expected(context.folder, stage, rows_read(stage.reads, entries), compute) if compute else None


def _current(context: PlanContext, stage: str) -> tuple[Manifest | None, list[str]]:
    try:
        return context.current(context.folder, stage), []
    except StoreError as error:
        return None, [str(error)]


def _ready(context: PlanContext, stage: AnyStage) -> PlanRow:
    """Compare a stage whose inputs exist with its output, and count what it would reuse and compute."""
    current, damage = _current(context, stage.name)
    forced = stage.name in context.run.force
    why = ["forced"] if forced else []
    state: Freshness = "missing" if current is None and not damage else "stale"
    try:
        resolved = resolve_stage(context.folder, stage, context.config, context.run, context.stages, context.current)
    except (StoreError, InputError) as error:
        known = [] if current is None else context.reasons(stage, current)
        text = "; ".join([*why, *damage, *known, str(error)])
        return PlanRow(stage.name, state, text, None, "unknown", current=current)
    digest_of = {path: context.inventory.known(path) or UNREAD for path in paths_of(resolved)}
    work = key_stage(resolved, digest_of)
    unread = {path for path, digest in digest_of.items() if digest == UNREAD}
    if current is None:
        why += damage or ["never ran"]
    else:
        entries = {name: entry.fingerprint for name, (_, entry) in resolved.inputs.entries.items()}
        causes = [*reasons(context.folder, current, stage, resolved.config.content(), entries, work, unread)]
        if not why and not causes and current.key == work.key:
            return PlanRow(stage.name, "fresh", "nothing changed", 0, "exactly", work.n_units, current=current)
        why += causes
    n_units = work.n_units
    done = 0 if forced else _done(context.folder, work, unread)
    if done == n_units:
        is_whole = stage.shard_by is None
        why.append("an earlier output matches" if is_whole else "all shards exist, only the manifest is rewritten")
    needs = _needs(context, stage, n_units - done)
    # a touched file may prove unchanged, and so match what the stage finished before
    finished = keys_of(context.folder, stage.name) or context.folder.names(f"{stage_folder(stage.name)}/{SHARDS}")
    bound: CountBound = "at most" if unread and not forced and finished else "exactly"
    text = "; ".join(why) or "inputs changed"
    return PlanRow(stage.name, state, text, n_units - done, bound, done, needs=needs, current=current)


def _done(folder: Folder, work: KeyedStage, unread: set[str]) -> int:
    """Return the number of units that exist already."""
    if not unread and usable_manifest(folder, work) is not None:
        return work.n_units
    if work.resolved.stage.shard_by is None:
        return 0
    touched = {source.shard for source in work.resolved.sources if not unread.isdisjoint(source.files)}
    return len(finished_shards(work, folder).keys() - touched)


@dataclass(frozen=True)
class StatusRow:
    """The state of one stage."""

    plan: PlanRow
    rows: int | None = None
    """Rows of the current output; None where there is none."""
    rejected: int | None = None
    started: str | None = None
    """When it was computed, ISO 8601 in UTC."""
    seconds: float | None = None
    uri: str | None = None


def status(stages: Mapping[str, AnyStage], config: PipelineConfig, run: RunOptions) -> list[StatusRow]:
    """Return the state of every stage, in order; sizes and times of files are checked, files are not read."""
    folder = open_folder(run.root)
    rows = []
    for row in plan(stages, config, run):
        manifest = row.current
        if manifest is None:
            rows.append(StatusRow(row))
            continue
        ran = unless_damaged(read_run_record, folder, manifest.stage, manifest.key)
        started, seconds = (None, None) if ran is None else (ran.started, ran.seconds)
        uri = f"{folder.url}/{manifest_path(manifest.stage, manifest.key)}"
        rows.append(StatusRow(row, manifest.n_out, units_lost(manifest.rejected), started, seconds, uri))
    return rows
