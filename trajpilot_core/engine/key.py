"""The inputs and sources of a stage, resolved, and the content key that follows from them.

A key covers content and settings only: stage, version, its settings, fingerprints of the declared entries, digests and
facts of outside inputs. Place and time do not enter it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from schemas.artifacts import Entry, Manifest, SourceNotes
from schemas.base import Record, canonical_json, canonical_object, fingerprint, fingerprint_of_text
from schemas.config import PipelineConfig, RunOptions
from schemas.places import OtherRun
from schemas.training import PredictorConfig
from trajpilot_core.engine.resolve import resolve_device, resolve_precision
from trajpilot_core.engine.stage import AnyStage, Config, Source, Stage
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.plugins import with_versions
from trajpilot_core.store.files import Folder
from trajpilot_core.store.locations import parse_location
from trajpilot_core.store.manifest import (
    SOURCES,
    current_manifest,
    read_sealed,
    seal,
    shards_of,
    stage_folder,
    unless_damaged,
)
from trajpilot_core.store.reading import Inputs

Currents = Callable[[Folder, str], Manifest | None]
"""(root, stage) -> its current output."""
KEY_CHARACTERS = 32
"""128 bits of a sha256: short enough for every file system, far beyond chance."""


@dataclass(frozen=True)
class ResolvedStage:
    """One stage with its inputs resolved."""

    stage: AnyStage
    config: Record
    """Settings of the stage, nothing left to `auto`."""
    inputs: Inputs
    sources: tuple[Source, ...]
    """Sorted by shard."""


@dataclass(frozen=True)
class KeyedStage:
    """A resolved stage with its keys."""

    resolved: ResolvedStage
    key: str
    shard_keys: Mapping[str, str]
    """Shard -> key; empty where the stage is not sharded."""
    inputs: Mapping[str, str]
    """As the manifest lists them: entry, `file:<path>` or `shard:<name>` -> fingerprint."""

    @property
    def n_units(self) -> int:
        """Number of shards (may be 0); 1 where the stage is not sharded."""
        return 1 if self.resolved.stage.shard_by is None else len(self.shard_keys)


def rejects_entry(stage: str) -> str:
    """Return the name of the rejects table that every stage writes in addition to what it declares."""
    return f"{stage}.rejects"


def producers(stages: Mapping[str, AnyStage]) -> dict[str, str]:
    """Return entry name -> stage that writes it.

    Raises:
        StoreError: two stages declare one entry.
    """
    writers: dict[str, str] = {}
    for stage in stages.values():
        for name in (*stage.writes, rejects_entry(stage.name)):
            if name in writers:
                raise StoreError(f"{name!r} is written by {writers[name]} and by {stage.name}; rename one of them")
            writers[name] = stage.name
    return writers


def upstream(stages: Mapping[str, AnyStage], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return stage -> those of `names`, the stages of a run, whose entries it reads, both in the order of `names`.

    The outputs of all other stages must exist already.

    Raises:
        StoreError: two stages declare one entry.
    """
    writer = producers(stages)
    read = {name: {writer.get(entry) for entry in stages[name].reads} for name in names}
    return {name: tuple(other for other in names if other in read[name]) for name in names}


def resolve_inputs(
    folder: Folder, stage: AnyStage, stages: Mapping[str, AnyStage], currents: Currents = current_manifest
) -> Inputs:
    """Bind the declared entries of a stage to the outputs that `currents` finds; a caching one reads a manifest once.

    Raises:
        StoreError: no stage writes an entry, its stage has not run, or what it wrote is damaged.
    """
    writer = producers(stages)
    manifests: dict[str, Manifest | None] = {}
    entries: dict[str, tuple[str, Entry]] = {}
    for name in stage.reads:
        if name not in writer:
            raise StoreError(f"stage {stage.name} reads {name!r}, which no stage writes; correct Stage.reads")
        producer = writer[name]
        if producer not in manifests:
            manifests[producer] = currents(folder, producer)
        manifest = manifests[producer]
        if manifest is None or name not in manifest.entries:
            raise StoreError(
                f"stage {stage.name} needs {name!r} of stage {producer}, which does not exist under {folder.url}; run "
                f"{producer} first"
            )
        entries[name] = (producer, manifest.entries[name])
    shards = {name: shards_of(manifest) for name, manifest in manifests.items() if manifest is not None}
    return Inputs(folder, stage.name, entries, shards)


def resolve_stage(
    folder: Folder,
    stage: AnyStage,
    config: PipelineConfig,
    run: RunOptions,
    stages: Mapping[str, AnyStage],
    currents: Currents = current_manifest,
) -> ResolvedStage:
    """Resolve everything about a stage except the digests of its files; `currents` as in `resolve_inputs`.

    Raises:
        StoreError: an input does not exist (see `resolve_inputs`).
        InputError: the stage's sources contradict each other, or a sharded stage has none; or its settings name
            another run whose address may not be opened.
    """
    stage = stage.under(config)
    settings = resolve_config(stage, config, run)
    _check_other_runs(stage.section, settings)
    inputs = resolve_inputs(folder, stage, stages, currents)
    listed = stage.sources(inputs, settings, run.data_root) if stage.sources is not None else []
    sources = tuple(sorted(listed, key=lambda source: source.shard))
    _check_sources(stage, sources)
    return ResolvedStage(stage, settings, inputs, sources)


def resolve_config(stage: Stage[Config], config: PipelineConfig, run: RunOptions) -> Config:
    """Return the settings of a stage with everything `auto` resolved."""
    settings = with_versions(stage.settings(config) if stage.completed is None else stage.completed(config))
    return resolve_precision(settings, resolve_device(run.device))


def _check_other_runs(section: str, config: Record) -> None:
    for name in type(config).model_fields:
        other = getattr(config, name)
        if isinstance(other, PredictorConfig):  # settings of another section that a stage works with
            _check_other_runs(name, other)
        if isinstance(other, OtherRun):
            try:
                parse_location(other.place)
            except StoreError as error:
                raise InputError(f"{section}.{name}: {error}") from error


def _check_sources(stage: AnyStage, sources: tuple[Source, ...]) -> None:
    names = [source.shard for source in sources]
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"stage {stage.name}: the shard name {name!r} is not valid UTF-8; correct the corpus"
            ) from error
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"stage {stage.name}: two sources have the name {twice!r}; take ids must be unique")
    if stage.shard_by is None and any(names):
        raise StoreError(f"stage {stage.name} is not sharded but names the shard {names[0]!r}; set Stage.shard_by")
    if stage.shard_by is None and len(names) > 1:
        raise StoreError(f"stage {stage.name} is not sharded but has {len(names)} sources; join them")
    if stage.shard_by is not None and not names:
        raise InputError(f"stage {stage.name} has no input: no {stage.shard_by} is left; see ingest.rejects")


def paths_of(resolved: ResolvedStage) -> list[str]:
    """Return all files that the stage reads from outside the store, sorted."""
    return sorted({path for source in resolved.sources for path in source.files})


def key_stage(resolved: ResolvedStage, digest_of: Mapping[str, str]) -> KeyedStage:
    """Compute the stage's key and the keys of its shards; `digest_of`: every path of `paths_of` -> its digest."""
    stage = resolved.stage
    identity: dict[str, JsonValue] = {"stage": stage.name, "version": stage.version}
    identity["config"] = resolved.config.content()
    entries: dict[str, str] = {name: entry.fingerprint for name, (_, entry) in resolved.inputs.entries.items()}
    shard_keys: dict[str, str] = {}
    if stage.shard_by is not None:
        shard_keys = make_shard_keys(stage, identity, resolved.sources, digest_of)
        outside = {f"shard:{shard}": key for shard, key in shard_keys.items()}
    else:
        outside = {f"file:{path}": digest_of[path] for source in resolved.sources for path in source.files}
        for source in resolved.sources:
            outside["facts"] = fingerprint_of_text(source.canonical_facts)
    inputs = {**entries, **outside}
    identity["inputs"] = dict(inputs)
    return KeyedStage(resolved, fingerprint(identity)[:KEY_CHARACTERS], shard_keys, inputs)


def make_shard_keys(
    stage: AnyStage, identity: Mapping[str, JsonValue], sources: Iterable[Source], digest_of: Mapping[str, str]
) -> dict[str, str]:
    """Return shard -> key, over the stage's name, version and config, the digests of the files in order, and the facts.

    `identity` has `stage`, `version` and `config`, the settings as JSON. Paths do not enter a key, since a moved corpus
    is the same corpus; nor do settings that no shard depends on.
    """
    config = identity["config"]
    assert isinstance(config, dict)
    content = {**identity, "config": stage.settings_of_shards(config)}
    shared = {name: canonical_json(value) for name, value in content.items()}
    keys = {}
    for source in sources:
        shard, files = canonical_json(source.shard), canonical_json([digest_of[path] for path in source.files])
        texts = {**shared, "shard": shard, "files": files, "facts": source.canonical_facts}
        keys[source.shard] = fingerprint_of_text(canonical_object(texts))[:KEY_CHARACTERS]
    return keys


def spelled(path: str) -> str:
    """Return a path for the notes, with bytes that are not UTF-8 escaped."""
    return path.encode(errors="backslashreplace").decode()


def write_notes(folder: Folder, resolved: ResolvedStage, key: str, digest_of: Mapping[str, str]) -> None:
    """Write the digests of the files of every unit of a stage next to the manifest of `key`."""
    units = {source.shard: {spelled(path): digest_of[path] for path in source.files} for source in resolved.sources}
    folder.replace(f"{stage_folder(resolved.stage.name)}/{key}/{SOURCES}", seal(SourceNotes(units=units)))


def read_notes(folder: Folder, stage: str, key: str) -> dict[str, dict[str, str]]:
    """Return unit -> file -> digest; empty where there are no notes or they are damaged."""
    notes = unless_damaged(read_sealed, folder, SourceNotes, f"{stage_folder(stage)}/{key}/{SOURCES}")
    return {} if notes is None else notes.units
