"""Manifests, pointers and shard records. Files without them do not count as an output.

    artifacts/<stage>/current                      the current key, replaced atomically
    artifacts/<stage>/<key>/manifest.json          written last, never changes
    artifacts/<stage>/<key>/run_record.json        clock, host, what was reused: not part of the output
    artifacts/<stage>/<key>/sources.json           digests of the input files by take
    artifacts/<stage>/<key>/data-<sha256>.*        immutable files
    artifacts/<stage>/shards/<shard key>/record.json  completion marker of one shard, next to its data

Every JSON document contains its own digest, because a flipped digit would otherwise go unnoticed.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from pydantic import JsonValue, ValidationError

from schemas.artifacts import ArtifactRef, Entry, FileEntry, Manifest, RunRecord, ShardRecord
from schemas.base import Record, fingerprint
from trajpilot_core.errors import InputError, StoreError, VersionError
from trajpilot_core.incoming import parse_json
from trajpilot_core.store.files import Folder
from trajpilot_core.store.locations import check_name

FORMAT = 1
ARTIFACTS = "artifacts"
CURRENT = "current"
SHARDS = "shards"
MANIFEST, RECORD = "manifest.json", "record.json"
RUN_RECORD, SOURCES = "run_record.json", "sources.json"
"""Side files of a manifest."""
R = TypeVar("R", bound=Record)
LARGEST_FILE_BYTES = 2 * 10**9
"""Maximum size of a file: writers and readers keep a file in memory, and one PUT transfers it."""
T = TypeVar("T")
P = ParamSpec("P")
OTHER_VERSION = "use the version that wrote it, or run its stage again with this one"


def stage_folder(stage: str) -> str:
    """Return the path of a stage's folder, relative to the root."""
    return f"{ARTIFACTS}/{check_name(stage)}"


def manifest_path(stage: str, key: str) -> str:
    """Return the path of a manifest, relative to the root."""
    return f"{stage_folder(stage)}/{key}/{MANIFEST}"


def shard_path(stage: str, key: str) -> str:
    """Return the path of a shard's record, relative to the root."""
    return f"{stage_folder(stage)}/{SHARDS}/{key}/{RECORD}"


def seal(record: Record) -> bytes:
    """Serialise the content of a record as readable JSON with its digest."""
    body: dict[str, JsonValue] = {**record.content(), "sha256": record.digest()}
    return (json.dumps(body, sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False) + "\n").encode()


def unseal(kind: type[R], content: bytes, where: str) -> R:
    """Read a sealed record.

    Raises:
        StoreError: not JSON, or the digest does not match.
        VersionError: undamaged, but not with the fields of `kind`.
    """
    try:
        body = parse_json(content, where)
        is_whole = body.pop("sha256") == fingerprint(body)
    except (InputError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise StoreError(f"{where} is damaged ({type(error).__name__}); run its stage again") from error
    if not is_whole:
        raise StoreError(f"{where} is damaged (its digest does not match); run its stage again")
    try:
        record = kind.model_validate(body)
    except ValidationError as error:
        raise VersionError(f"{where} is undamaged, but another version wrote it; {OTHER_VERSION}") from error
    if record.content() != body:
        raise VersionError(f"{where} is undamaged, but another version wrote it; {OTHER_VERSION}")
    return record


def read_sealed(folder: Folder, kind: type[R], path: str) -> R | None:
    """Read a sealed record, None where there is none; StoreError where it is damaged."""
    if folder.size(path) is None:
        return None
    return unseal(kind, folder.read(path), f"{folder.url}/{path}")


def unless_damaged(read: Callable[P, T | None], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """Return the result of `read`; None also for damage, where the record is optional or can be recomputed."""
    try:
        return read(*args, **kwargs)
    except StoreError:
        return None


def read_manifest(folder: Folder, stage: str, key: str) -> Manifest | None:
    """Return the manifest of a key; None where the key was never committed.

    Raises:
        StoreError: damaged.
        VersionError: written by another version of this project.
    """
    manifest = read_sealed(folder, Manifest, manifest_path(stage, key))
    if manifest is not None and (manifest.format != FORMAT or manifest.stage != stage or manifest.key != key):
        raise VersionError(f"{folder.url}/{manifest_path(stage, key)} is of another format or key; {OTHER_VERSION}")
    return manifest


class Pointer(Record):
    """The current key of a stage."""

    key: str


def current_key(folder: Folder, stage: str) -> str | None:
    """Return the current key; None before the first commit; StoreError where the pointer is damaged."""
    pointer = read_sealed(folder, Pointer, f"{stage_folder(stage)}/{CURRENT}")
    return None if pointer is None else check_name(pointer.key)


def current_manifest(folder: Folder, stage: str) -> Manifest | None:
    """Return the current manifest; None before the first commit.

    Raises:
        StoreError: the pointer or the manifest is damaged, or the manifest is gone.
    """
    key = current_key(folder, stage)
    if key is None:
        return None
    manifest = read_manifest(folder, stage, key)
    if manifest is None:
        raise StoreError(f"{folder.url}/{manifest_path(stage, key)} is gone; run {stage} again")
    return manifest


def point_to(folder: Folder, stage: str, key: str) -> None:
    """Make `key` the current one."""
    content = seal(Pointer(key=key))
    path = f"{stage_folder(stage)}/{CURRENT}"
    if folder.size(path) is None or folder.read(path) != content:
        folder.replace(path, content)


def commit_manifest(folder: Folder, manifest: Manifest, run_record: RunRecord, *, replace: bool) -> Manifest:
    """Write a manifest whose files exist and point to it; return the committed one (another writer's, if it was first).

    `replace` writes over a manifest that was forced or found damaged.
    """
    path, content = manifest_path(manifest.stage, manifest.key), seal(manifest)
    if replace:
        folder.replace(path, content)
    elif not folder.create(path, content):
        manifest = read_manifest(folder, manifest.stage, manifest.key) or manifest
    folder.replace(f"{stage_folder(manifest.stage)}/{manifest.key}/{RUN_RECORD}", seal(run_record))
    point_to(folder, manifest.stage, manifest.key)
    return manifest


def read_run_record(folder: Folder, stage: str, key: str) -> RunRecord | None:
    """Return the run record of a key; None where there is none."""
    return read_sealed(folder, RunRecord, f"{stage_folder(stage)}/{key}/{RUN_RECORD}")


def write_data(folder: Folder, stage: str, below: str, suffix: str, content: bytes, rows: int) -> FileEntry:
    """Write one immutable file, named by its content, and return its entry.

    Args:
        below: folder of the file, relative to that of the stage.
        suffix: `parquet`, `safetensors`, or the name of a document.
        rows: number of rows, 0 where it is not a table.

    Raises:
        StoreError: it is larger than LARGEST_FILE_BYTES.
    """
    if len(content) > LARGEST_FILE_BYTES:
        raise StoreError(
            f"stage {stage} writes a file (*.{suffix}) of {len(content):,} bytes; at most "
            f"{LARGEST_FILE_BYTES:,} are allowed; write a table by take (Stage.shard_by), a model in parts"
        )
    sha256 = hashlib.sha256(content).hexdigest()
    name = f"{below}/data-{sha256}.{suffix}"
    folder.replace(f"{stage_folder(stage)}/{name}", content)
    return FileEntry(name=name, sha256=sha256, bytes=len(content), rows=rows)


def verified_bytes(folder: Folder, base: str, file: FileEntry) -> bytes:
    """Read a whole file and check its digest before it is parsed.

    Page checksums do not cover page headers and the footer, so the whole file is hashed whenever it is opened
    (docs/decisions/store.md has the cost).

    Raises:
        StoreError: missing, or not the committed bytes.
    """
    content = folder.read(f"{base}/{file.name}")
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise StoreError(
            f"{folder.url}/{base}/{file.name} is damaged: sha256 is {digest[:12]}, committed was {file.sha256[:12]}; "
            "`verify --repair` drops damaged outputs, the next run recomputes them"
        )
    return content


def entry_of(kind: str, files: Sequence[FileEntry]) -> Entry:
    """Build an entry; its fingerprint covers content and keys of its files in order, not their names."""
    content: list[JsonValue] = [[file.sha256, file.rows, *([file.key] if file.key else [])] for file in files]
    rows = sum(file.rows for file in files)
    return Entry(kind=kind, files=tuple(files), fingerprint=fingerprint([kind, content]), rows=rows)


def files_of(manifest: Manifest | ShardRecord) -> list[FileEntry]:
    """Return all files of a manifest or a shard record."""
    if isinstance(manifest, Manifest):
        entries = [*manifest.entries.values()]
    else:
        entries = [manifest.entry, *manifest.further.values(), manifest.rejects]
    return [file for entry in entries for file in entry.files]


def shards_of(manifest: Manifest) -> tuple[str, ...]:
    """Return the sorted names of the shards of an output; in every table their files have the same order."""
    marked = (name.partition(":") for name in manifest.inputs)
    return tuple(sorted(shard for kind, _, shard in marked if kind == "shard"))


def missing_files(folder: Folder, stage: str, record: Manifest | ShardRecord) -> list[str]:
    """Return the names of files that are missing or of another size; reads no file."""
    base = stage_folder(stage)
    return [file.name for file in files_of(record) if folder.size(f"{base}/{file.name}") != file.bytes]


def lacking_entries(manifest: Manifest, writes: Sequence[str]) -> list[str]:
    """Return the entries in `writes` that an output, of an earlier version of the code, does not have."""
    return [name for name in writes if name not in manifest.entries]


def ref_of(folder: Folder, manifest: Manifest) -> ArtifactRef:
    """Return the handle of a committed output."""
    content: dict[str, JsonValue] = {name: entry.fingerprint for name, entry in manifest.entries.items()}
    return ArtifactRef(
        stage=manifest.stage,
        uri=f"{folder.url}/{manifest_path(manifest.stage, manifest.key)}",
        fingerprint=fingerprint(content),
        rows=manifest.n_out,
    )
