"""Why a stage is not fresh: its settings, version, takes, files and inputs against those of the output that counts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from schemas.artifacts import Manifest, UnitSources
from schemas.base import fingerprint
from trajpilot_core.engine.key import KeyedStage, ResolvedStage, make_shard_keys, stage_identity
from trajpilot_core.engine.planning.differences import changed_settings, differing, takes_behind
from trajpilot_core.engine.provenance import read_notes, unit_sources
from trajpilot_core.store.files import Folder
from trajpilot_core.store.inventory import ABSENT
from trajpilot_core.store.manifest import current_manifest, lacking_entries, missing_files

SHOWN = 3
"""Names that a reason spells out before it counts the rest."""
UNREAD = "unread"
"""Stands for the digest of a file that was touched since it was read; only reading would show whether it changed."""


@dataclass(frozen=True)
class TakeChanges:
    """In which takes the sources of a sharded stage differ from those of its output."""

    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Take -> the files and facts that changed, as far as they were noted."""
    touched: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The same of takes with a file that only reading would judge."""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


def own_reasons(current: Manifest, asked_version: int, config: Mapping[str, JsonValue]) -> list[str]:
    """Return the reasons that lie in the stage itself: its code version and its settings, old -> new.

    Args:
        current: the output that counts.
        asked_version: version of the stage's code.
        config: the stage's settings as JSON, nothing left to `auto`.
    """
    reasons = [] if current.version == asked_version else [f"version {current.version} -> {asked_version}"]
    changed = changed_settings(current.config, config)
    reasons += [f"{name} {old} -> {new}" for name, (old, new) in list(changed.items())[:SHOWN]]
    if len(changed) > SHOWN:
        more = len(changed) - SHOWN
        reasons.append(f"and {more} more {'setting' if more == 1 else 'settings'}")
    return reasons


def reasons(
    folder: Folder, current: Manifest, work: KeyedStage, digest_of: Mapping[str, str], writer: Mapping[str, str]
) -> list[str]:
    """Return every reason why an output is not what a run would make now; empty where there is none.

    Args:
        folder: the root.
        current: the output that counts.
        work: what would be made now.
        digest_of: input file -> digest, UNREAD where only reading would show it.
        writer: entry name -> stage that writes it.
    """
    resolved = work.resolved
    own = own_reasons(current, resolved.stage.version, resolved.config.content())
    if resolved.stage.shard_by is None:
        found = own + _file_reasons(folder, current, resolved, digest_of)
    else:
        found = own + _take_reasons(take_changes(folder, current, work, digest_of), resolved.stage.shard_by)
    return [
        *found,
        *_entry_reasons(folder, current, work, writer),
        *gone_reasons(folder, current, resolved.stage.writes),
    ]


def gone_reasons(folder: Folder, current: Manifest, writes: Sequence[str]) -> list[str]:
    """Name what an output lacks of what its stage writes now, and its files that are gone; empty where all is there."""
    lacking = lacking_entries(current, writes)
    missing = missing_files(folder, current.stage, current)
    return [
        *_listed("entry came later than the output", "entries came later than the output", lacking),
        *_listed("file of the output is gone", "files of the output are gone", missing),
    ]


def noted_reasons(folder: Folder, current: Manifest, unit: str | None, known: Callable[[str], str | None]) -> list[str]:
    """Name what changed among the files that an output was made from, as far as they were noted.

    Args:
        folder: the root.
        current: the output that counts, of a stage whose inputs a run would recompute.
        unit: what it is sharded by.
        known: input file -> digest, None where only reading would show it.
    """
    causes: dict[str, tuple[str, ...]] = {}
    touched: set[str] = set()
    for shard, noted in read_notes(folder, current.stage, current.key).items():
        files = {path: known(path) or UNREAD for path in noted.files}
        if files != noted.files:
            causes[shard] = _causes(noted, UnitSources(files=files, facts=noted.facts))
            touched |= {shard} if UNREAD in files.values() else set()
    if unit is None:
        paths = [path for why in causes.values() for path in why]
        return _listed("file changed", "files changed", paths)
    changed = {shard: why for shard, why in causes.items() if shard not in touched}
    return _take_reasons(TakeChanges(changed, {shard: causes[shard] for shard in causes if shard in touched}), unit)


def settled_reasons(current: Manifest, settled: Mapping[str, str]) -> list[str]:
    """Name the inputs that differ from those of an output.

    Args:
        current: the output that counts.
        settled: entry -> fingerprint, of the stages before that a run leaves as they are.
    """
    changed = [name for name, print_ in sorted(settled.items()) if current.inputs.get(name) != print_]
    return _listed("input changed", "inputs changed", changed)


def take_changes(folder: Folder, current: Manifest, work: KeyedStage, digest_of: Mapping[str, str]) -> TakeChanges:
    """Compare the takes of a sharded stage with those of its output, settings and version left aside."""
    before = {name.removeprefix("shard:"): key for name, key in current.inputs.items() if name.startswith("shard:")}
    identity: dict[str, JsonValue] = {
        "stage": current.stage,
        "version": current.version,
        "config": dict(current.config),
    }
    same = identity == stage_identity(work.resolved)
    now = {source.shard: source for source in work.resolved.sources}
    keys = work.shard_keys if same else make_shard_keys(work.resolved.stage, identity, now.values(), digest_of)
    moved = [source for shard, source in now.items() if shard in before and before[shard] != keys[shard]]
    notes = read_notes(folder, current.stage, current.key) if moved else {}
    causes = {
        source.shard: _causes(notes.get(source.shard), unit_sources(source, digest_of), only_common=not same)
        for source in moved
    }
    if not same:  # other settings may read other files: without notes a cause of all takes is theirs
        is_partial = len(moved) < len(now)
        causes = {shard: why for shard, why in causes.items() if why or (is_partial and shard not in notes)}
    touched = {shard for shard in causes if any(digest_of[path] == UNREAD for path in now[shard].files)}
    return TakeChanges(
        {shard: why for shard, why in causes.items() if shard not in touched},
        {shard: why for shard, why in causes.items() if shard in touched},
        tuple(sorted(set(now) - set(before))),
        tuple(sorted(set(before) - set(now))),
    )


def _causes(before: UnitSources | None, now: UnitSources, *, only_common: bool = False) -> tuple[str, ...]:
    """Return the files and facts of a unit that differ; without notes those whose file was touched.

    Args:
        before: as it was noted.
        now: as it is.
        only_common: leave out what only one of the two has.
    """
    if before is None:
        return tuple(path for path, digest in now.files.items() if digest == UNREAD)
    files, facts = (differing(old, new) for old, new in ((before.files, now.files), (before.facts, now.facts)))
    if only_common:
        files = [path for path in files if path in before.files and path in now.files]
        facts = [name for name in facts if name in before.facts and name in now.facts]
    return (*(f"{path} missing" if now.files.get(path) == ABSENT else path for path in files), *facts)


def _take_reasons(changes: TakeChanges, unit: str) -> list[str]:
    found = _caused(unit, "changed", changes.changed) + _caused(unit, "touched", changes.touched)
    for what, names in (("new", changes.added), ("gone", changes.removed)):
        found += _listed(f"{unit} {what}", f"{unit}s {what}", names)
    return found


def _caused(unit: str, what: str, causes: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Name units with their causes, or the causes once where they are the same for all."""
    shared = set(causes.values())
    if len(shared) == 1 and len(causes) > 1:
        names = list(causes)
        after = f" ({', '.join(next(iter(shared))[:SHOWN])})" if any(shared) else ""
    else:
        names = [f"{name} ({', '.join(why[:SHOWN])})" if why else name for name, why in causes.items()]
        after = ""
    return [f"{reason}{after}" for reason in _listed(f"{unit} {what}", f"{unit}s {what}", names)]


def _file_reasons(
    folder: Folder, current: Manifest, resolved: ResolvedStage, digest_of: Mapping[str, str]
) -> list[str]:
    """Return what changed among the files and facts of a stage that is not sharded."""
    before = {n.removeprefix("file:"): digest for n, digest in current.inputs.items() if n.startswith("file:")}
    now = {path: digest_of[path] for source in resolved.sources for path in source.files}
    kinds: dict[str, list[str]] = {"changed": [], "touched": [], "missing": [], "new": []}
    for path in differing(before, now):
        if path in now:
            kinds[_kind(before.get(path, ABSENT), now[path])].append(path)
    kinds["gone"] = sorted(set(before) - set(now))
    found = [reason for kind, paths in kinds.items() for reason in _listed(f"file {kind}", f"files {kind}", paths)]
    return found + _fact_reasons(folder, current, resolved, digest_of)


def _kind(before: str, now: str) -> str:
    if now == ABSENT:
        return "missing"
    if before == ABSENT:
        return "new"
    return "touched" if now == UNREAD else "changed"


def _fact_reasons(
    folder: Folder, current: Manifest, resolved: ResolvedStage, digest_of: Mapping[str, str]
) -> list[str]:
    if not resolved.sources or current.inputs.get("facts") == fingerprint(dict(resolved.sources[0].facts)):
        return []
    noted = read_notes(folder, current.stage, current.key).get("")
    now = unit_sources(resolved.sources[0], digest_of).facts
    names = sorted(now) if noted is None else differing(noted.facts, now)
    return [f"what is there changed ({', '.join(names)})"]


def _entry_reasons(folder: Folder, current: Manifest, work: KeyedStage, writer: Mapping[str, str]) -> list[str]:
    """Return the inputs from other stages that changed, and in which takes where the stage itself has none."""
    entries = work.resolved.inputs.entries
    changed = [name for name, (_, entry) in sorted(entries.items()) if current.inputs.get(name) != entry.fingerprint]
    if work.resolved.stage.shard_by is not None:
        return _listed("input changed", "inputs changed", changed)
    found = []
    for name in changed[:SHOWN]:
        now = current_manifest(folder, writer[name])
        known = name in current.inputs and now is not None
        takes = takes_behind(folder, now, name, current.inputs[name]) if known and now is not None else None
        where = f" in {_listed('take', 'takes', takes)[0]}" if takes else ""
        found.append(f"input {name} changed{where}")
    return found + ([f"and {len(changed) - SHOWN} more inputs"] if len(changed) > SHOWN else [])


def _listed(one: str, many: str, names: Sequence[str]) -> list[str]:
    """Return `3 takes changed: a, b, c`, or nothing for no name."""
    if not names:
        return []
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return [f"{len(names):,} {one if len(names) == 1 else many}: {shown}"]
