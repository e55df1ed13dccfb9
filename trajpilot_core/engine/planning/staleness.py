"""Why a stage is not fresh: one comparison of its current output with what a run would make now."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set

from pydantic import JsonValue

from schemas.artifacts import Manifest
from trajpilot_core.engine.key import KeyedStage
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import lacking_entries, missing_files, shards_of

DIGEST = re.compile(r"'[0-9a-f]{64}'")
LONGEST = 60
"""Characters of a value that are shown."""
SHOWN = 3
"""Names that a reason spells out before it counts the rest."""


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


def reasons(
    folder: Folder,
    current: Manifest,
    stage: AnyStage,
    config: Mapping[str, JsonValue],
    inputs: Mapping[str, str],
    work: KeyedStage | None = None,
    unread: Set[str] = frozenset(),
) -> Iterator[str]:
    """Yield every reason why the current output of a stage is not what a run would make; none where it is fresh.

    Args:
        folder: the root.
        current: the output of the stage.
        stage: what would run.
        config: its settings, nothing left to `auto`.
        inputs: entry that it reads -> fingerprint; without those that the run would recompute.
        work: the stage with its keys; None: they are not known yet, so files and shards are not compared.
        unread: input files that were touched since they were read; only reading them would show a change.
    """
    if current.version != stage.version:
        yield f"version {current.version} -> {stage.version}"
    settings = [f"{name} {old} -> {new}" for name, (old, new) in changed_settings(current.config, config).items()]
    yield from settings[:SHOWN]
    if (more := len(settings) - SHOWN) > 0:
        yield f"and {more} more setting{'s' if more > 1 else ''}"
    if work is not None and stage.shard_by is None:
        yield from _of_files(current, work, unread)
    elif work is not None:
        yield from _of_shards(current, work, unread, is_same_code=current.version == stage.version and not settings)
    yield from _listed(
        "input", "changed", [name for name in sorted(inputs) if current.inputs.get(name) != inputs[name]]
    )
    yield from _listed("entry", "missing from the output", lacking_entries(current, stage.writes))
    yield from _listed("output file", "missing", missing_files(folder, current.stage, current))


def _of_files(current: Manifest, work: KeyedStage, unread: Set[str]) -> Iterator[str]:
    """Name the files of a stage without shards that differ, and whether its facts do."""
    files = sorted(name for name in {*current.inputs, *work.inputs} if name.startswith("file:"))
    paths = [name.removeprefix("file:") for name in files if current.inputs.get(name) != work.inputs.get(name)]
    yield from _listed("file", "changed", [path for path in paths if path not in unread])
    yield from _listed("file", "touched", [path for path in paths if path in unread])
    if current.inputs.get("facts") != work.inputs.get("facts"):
        yield "source metadata changed"


def _of_shards(current: Manifest, work: KeyedStage, unread: Set[str], *, is_same_code: bool) -> Iterator[str]:
    """Name the shards that changed, that have a touched file, that are new or gone; other code changes all."""
    unit, now, before = str(work.resolved.stage.shard_by), work.shard_keys, set(shards_of(current))
    touched = {
        source.shard: path
        for source in work.resolved.sources
        for path in source.files
        if source.shard in before and path in unread
    }
    differ = [shard for shard in now if shard in before and current.inputs[f"shard:{shard}"] != now[shard]]
    yield from _listed(unit, "changed", [shard for shard in differ if is_same_code and shard not in touched])
    yield from _listed(unit, "touched", [f"{shard} ({path})" for shard, path in touched.items()])
    yield from _listed(unit, "new", sorted(now.keys() - before))
    yield from _listed(unit, "gone", sorted(before - now.keys()))


def _listed(what: str, state: str, names: Sequence[str]) -> Iterator[str]:
    """Yield `3 takes changed: a, b, c`, or nothing for no name."""
    if names:
        many = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
        shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        yield f"{len(names):,} {what if len(names) == 1 else many} {state}: {shown}"
