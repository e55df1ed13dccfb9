"""What a run would do, from looks alone: files are stat'ed, not read. Imports neither torch nor Prefect."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from schemas.artifacts import Manifest
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.stages.compute import finished_shards
from trajpilot_core.stages.execute import removed_shards, usable_manifest
from trajpilot_core.stages.key import Asked, Keyed, ask, keyed, paths_of, producers
from trajpilot_core.stages.stage import Stage
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.inventory import Inventory, load_inventory
from trajpilot_core.store.manifest import current_manifest, missing_files

State = Literal["fresh", "stale", "missing", "unknown"]
Bound = Literal["exactly", "at most", "unknown"]
UNREAD = "unread"
"""Stands for the digest of a file that only reading would tell."""
SHOWN = 3
"""Changes that `why` spells out before it counts the rest."""


@dataclass(frozen=True)
class PlanRow:
    """What a run would do with one stage. A unit is a shard, or the whole stage where it is not sharded."""

    stage: str
    state: State
    why: str
    compute: int | None
    """Units to compute, None where nobody can know yet."""
    bound: Bound
    removed: int

    def work(self) -> str:
        """Return the amount of work as people read it."""
        return "unknown" if self.compute is None else f"{self.bound} {self.compute:,}"


def plan(stages: Mapping[str, Stage], config: PipelineConfig, run: RunOptions) -> list[PlanRow]:
    """Say for every stage, in order, whether it is fresh, and if not why and how much is to compute.

    Args:
        stages: all stages by name, producers before their readers.
        config: what would be computed.
        run: where; `force` counts as work.

    Raises:
        StoreError: the root cannot be opened, or two stages write one entry.
    """
    folder = open_folder(run.root, run.protocols)
    inventory = load_inventory(folder, run.data_root, run.protocols)
    writer = producers(stages)
    rows: dict[str, PlanRow] = {}
    for stage in stages.values():
        before = dict.fromkeys(writer[name] for name in stage.reads if name in writer)
        waits = [name for name in before if name not in rows or rows[name].state != "fresh"]
        current, damage = _current(folder, stage.name)
        if waits:
            state: State = "missing" if current is None else "unknown"
            rows[stage.name] = PlanRow(stage.name, state, f"unknown until {waits[0]} ran", None, "unknown", 0)
        else:
            rows[stage.name] = damage or _plan_stage(folder, inventory, stage, config, run, stages, current)
    return list(rows.values())


def _current(folder: Folder, stage: str) -> tuple[Manifest | None, PlanRow | None]:
    try:
        return current_manifest(folder, stage), None
    except StoreError as error:
        return None, PlanRow(stage, "stale", str(error), None, "unknown", 0)


def _plan_stage(
    folder: Folder,
    inventory: Inventory,
    stage: Stage,
    config: PipelineConfig,
    run: RunOptions,
    stages: Mapping[str, Stage],
    current: Manifest | None,
) -> PlanRow:
    state: State = "missing" if current is None else "stale"
    try:
        asked = ask(folder, stage, config, run, stages)
    except (StoreError, InputError) as error:
        return PlanRow(stage.name, state, str(error), None, "unknown", 0)
    known = {path: inventory.known(path) for path in paths_of(asked)}
    unread = [path for path, digest in known.items() if digest is None]
    work = keyed(asked, {path: digest or UNREAD for path, digest in known.items()})
    removed = removed_shards(current, work)
    forced = stage.name in run.force
    if not forced and not unread and current is not None and current.key == work.key and usable_manifest(folder, work):
        return PlanRow(stage.name, "fresh", "nothing changed", 0, "exactly", 0)
    why = "forced" if forced else _why(folder, current, work, unread)
    compute = _units(folder, work, asked, set(unread), forced=forced)
    return PlanRow(stage.name, state, why, compute, "at most" if unread else "exactly", removed)


def _units(folder: Folder, work: Keyed, asked: Asked, unread: set[str], *, forced: bool) -> int:
    if asked.stage.shard_by is None:
        return 1 if forced or unread or usable_manifest(folder, work) is None else 0
    if forced:
        return len(asked.sources)
    done = finished_shards(work, folder)
    return sum(source.shard not in done or not unread.isdisjoint(source.files) for source in asked.sources)


def _why(folder: Folder, current: Manifest | None, work: Keyed, unread: list[str]) -> str:
    if current is None:
        return "never ran"
    reasons = []
    if current.version != work.asked.stage.version:
        reasons.append(f"version {current.version} -> {work.asked.stage.version}")
    now = work.asked.config.model_dump(mode="json")
    names = sorted(name for name in {*now, *current.config} if now.get(name) != current.config.get(name))
    reasons += [f"{name} {current.config.get(name)!r} -> {now.get(name)!r}" for name in names[:SHOWN]]
    if unread:
        reasons.append(_listed("file is new or changed", "files are new or changed", unread))
    changed = sorted(name for name, print_ in work.inputs.items() if current.inputs.get(name) != print_)
    if changed and not (unread or names):
        reasons.append(_listed("input is new or changed", "inputs are new or changed", changed))
    gone = sorted(set(current.inputs) - set(work.inputs))
    if gone:
        reasons.append(_listed("input is gone", "inputs are gone", gone))
    if not reasons:
        missing = missing_files(folder, current.stage, current)
        reasons.append(_listed("file of the output is gone", "files of the output are gone", missing))
    return "; ".join(reasons)


def _listed(one: str, many: str, names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names):,} {one if len(names) == 1 else many}: {shown}"
