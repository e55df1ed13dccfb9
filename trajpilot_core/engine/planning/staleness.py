"""Why a stage is not fresh: one comparison of its current output with what a run would make now."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from schemas.artifacts import Manifest, UnitSources
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.store.files import Folder
from trajpilot_core.store.inventory import ABSENT
from trajpilot_core.store.manifest import lacking_entries, missing_files, shards_of

DIGEST = re.compile(r"'[0-9a-f]{64}'")
LONGEST = 60
"""Characters of a value that are shown."""
SHOWN = 3
"""Names that a reason spells out before it counts the rest."""
UNREAD = "unread"
"""In place of the digest of a file that was touched since it was read; only reading it would show a change."""


def flat(config: Mapping[str, JsonValue], front: str = "") -> dict[str, JsonValue]:
    """Return a nested configuration as dotted name -> value, `train.lr` for example; lists stay whole."""
    leaves: dict[str, JsonValue] = {}
    for name, value in config.items():
        if isinstance(value, dict) and value:
            leaves |= flat(value, f"{front}{name}.")
        else:
            leaves[f"{front}{name}"] = value
    return leaves


def changed_settings(before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> dict[str, tuple[str, str]]:
    """Return dotted name -> (value before, value now) of every setting that differs; `-` where there is none."""
    old, new = flat(before), flat(now)
    names = sorted(name for name in {*old, *new} if name not in old or name not in new or old[name] != new[name])
    return {name: (_value(old, name), _value(new, name)) for name in names}


def _value(config: Mapping[str, JsonValue], name: str) -> str:
    text = repr(config[name]) if name in config else "-"
    if DIGEST.fullmatch(text):
        return text[1:13]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the names whose value differs, or that only one side has, sorted."""
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


Units = Mapping[str, UnitSources]
"""Unit (a shard, or "" where the stage is not sharded) -> its files and facts."""


@dataclass(frozen=True)
class WantedOutput:
    """What a run would make of one stage, as far as that is known without running the stages before it."""

    stage: AnyStage
    config: Mapping[str, JsonValue]
    """Its settings, nothing left to `auto`."""
    producers: Mapping[str, Manifest]
    """Entry that it reads -> the current output that contains it; without entries that the run would recompute."""
    known: Callable[[str], str]
    """Input file -> digest, UNREAD where only reading would show it."""
    units: Units | None = None
    """What each unit would be made from; None: not known yet, so the files of the current output are checked."""


def diff(folder: Folder, current: Manifest, notes: Units, wanted: WantedOutput) -> Iterator[str]:
    """Yield every reason why the current output of a stage is not what a run would make; none where it is fresh.

    Args:
        folder: the root.
        current: the output.
        notes: what its units were made from; empty where that was not noted.
        wanted: what a run would make.
    """
    stage, unit = wanted.stage, wanted.stage.shard_by
    if current.version != stage.version:
        yield f"version {current.version} -> {stage.version}"
    settings = [
        f"{name} {old} -> {new}" for name, (old, new) in changed_settings(current.config, wanted.config).items()
    ]
    yield from settings[:SHOWN]
    yield from _more(settings, "setting")
    now, shards = wanted.units, shards_of(current)
    if now is None:
        now, shards = {name: _looked_at(noted, wanted.known) for name, noted in notes.items()}, tuple(notes)
    if unit is None:
        yield from _whole_reasons(notes.get(""), now.get("", UnitSources(files={}, facts={})))
    else:
        yield from _shard_reasons(unit, shards, notes, now, current.version == stage.version and not settings)
    inputs = {name: producer.entries[name].fingerprint for name, producer in sorted(wanted.producers.items())}
    yield from _listed("input", "changed", [name for name in inputs if current.inputs.get(name) != inputs[name]])
    yield from _listed("entry", "missing from the output", lacking_entries(current, stage.writes))
    yield from _listed("output file", "missing", missing_files(folder, current.stage, current))


def _looked_at(noted: UnitSources, known: Callable[[str], str]) -> UnitSources:
    return UnitSources(files={path: known(path) for path in noted.files}, facts=noted.facts)


def _whole_reasons(before: UnitSources | None, now: UnitSources) -> Iterator[str]:
    """Name the files and facts of a stage without shards that changed; without notes only the touched files."""
    kinds: dict[str, list[str]] = {"changed": [], "touched": [], "missing": [], "new": [], "gone": []}
    for path in differing(now.files if before is None else before.files, now.files):
        kinds[_kind(None if before is None else before.files.get(path), now.files.get(path))].append(path)
    if before is None:
        kinds["touched"] = [path for path, digest in now.files.items() if digest == UNREAD]
    for kind, paths in kinds.items():
        yield from _listed("file", kind, paths)
    facts = [] if before is None else differing(before.facts, now.facts)
    if facts:
        yield f"source metadata changed ({', '.join(facts)})"


def _kind(before: str | None, now: str | None) -> str:
    if now is None:
        return "gone"
    if now == ABSENT:
        return "missing"
    if before in (None, ABSENT):
        return "new"
    return "touched" if now == UNREAD else "changed"


def _shard_reasons(unit: str, shards: Sequence[str], notes: Units, now: Units, is_same_code: bool) -> Iterator[str]:
    """Name the shards of an output that changed, with their files and facts; then those that are new or gone."""
    before = set(shards)
    causes = {shard: _causes(notes.get(shard), now[shard], is_same_code) for shard in now if shard in before}
    causes = {shard: why for shard, why in causes.items() if why}
    touched = {shard for shard in causes if UNREAD in now[shard].files.values()}
    yield from _caused(unit, "changed", {shard: why for shard, why in causes.items() if shard not in touched})
    yield from _caused(unit, "touched", {shard: why for shard, why in causes.items() if shard in touched})
    yield from _listed(unit, "new", sorted(now.keys() - before))
    yield from _listed(unit, "gone", sorted(before - now.keys()))


def _causes(before: UnitSources | None, now: UnitSources, is_same_code: bool) -> tuple[str, ...]:
    """Return the files and facts of a shard that differ; without notes those whose file was touched.

    Other settings or other code may read other files: then only what both have is compared.
    """
    if before is None:
        return tuple(path for path, digest in now.files.items() if digest == UNREAD)
    files = [p for p in differing(before.files, now.files) if is_same_code or (p in before.files and p in now.files)]
    facts = [f for f in differing(before.facts, now.facts) if is_same_code or (f in before.facts and f in now.facts)]
    return (*(f"{path} missing" if now.files.get(path) == ABSENT else path for path in files), *facts)


def _caused(unit: str, state: str, causes: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Name shards with their causes, or the causes once where they are the same for all."""
    shared = set(causes.values())
    if len(shared) == 1 and len(causes) > 1:
        for reason in _listed(unit, state, list(causes)):
            yield f"{reason} ({', '.join(next(iter(shared))[:SHOWN])})"
    else:
        yield from _listed(unit, state, [f"{shard} ({', '.join(why[:SHOWN])})" for shard, why in causes.items()])


def _more(names: Sequence[str], what: str) -> Iterator[str]:
    """Yield how many there are past those that are spelled out."""
    if (more := len(names) - SHOWN) > 0:
        yield f"and {more} more {what}{'s' if more > 1 else ''}"


def _listed(what: str, state: str, names: Sequence[str]) -> Iterator[str]:
    """Yield `3 takes changed: a, b, c`, or nothing for no name."""
    if names:
        many = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
        yield f"{len(names):,} {what if len(names) == 1 else many} {state}: {_shown(names)}"


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
