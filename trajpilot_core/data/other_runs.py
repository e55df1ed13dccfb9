"""Outputs of another run, opened read-only: those that the settings name by a digest, and what they were made from.

Every byte is checked against a manifest, as our own are (store/reading.py); nothing is written there. Imports no torch.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from schemas.artifacts import FileEntry, Manifest
from schemas.base import Record
from schemas.config import PipelineConfig
from schemas.places import OtherRun
from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.history import find_manifest, keys_of, stages_of
from trajpilot_core.store.locations import ALLOWED_PROTOCOLS
from trajpilot_core.store.manifest import (
    current_key,
    current_manifest,
    lacking_entries,
    manifest_path,
    missing_files,
    read_manifest,
    shards_of,
    stage_folder,
    unless_damaged,
    verified_file,
)
from trajpilot_core.store.parquet import read_table
from trajpilot_core.store.reading import StageInputs, read_entry_table, refuse_mixed
from trajpilot_core.store.tensors import Models, Tensors

R = TypeVar("R", bound=Record)
SETTING = {"ingest": "ingest.splits_of", "alignment": "alignment.pretrained", "predictor": "predictor.pretrained"}
"""Stage whose output is read -> the setting that names it."""
WANTED = {"ingest": ("takes",), "alignment": ("e_tau", "alignment_curves", "folds"), "predictor": ("predictors",)}
"""Stage -> entries that are read of its output."""
SHOWN = 5
"""Names that an error spells out."""


def shown(names: Sequence[str]) -> str:
    """Return a few of the names, and how many there are besides."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


class OtherTake(NamedTuple):
    """A take of another run."""

    take_id: str
    capture: str
    split: str


@dataclass(frozen=True)
class OtherOutput:
    """One output of another run; where something is wrong with it, the error is an InputError that names the setting.

    An output names what it was made from by fingerprints, and only content of these is read with it: an output that
    was made from other takes than those next to it now never goes together with them.
    """

    run: OtherRun
    folder: Folder
    manifest: Manifest

    @property
    def setting(self) -> str:
        """The setting that names this output."""
        return SETTING[self.manifest.stage]

    @property
    def named(self) -> str:
        """Where it lies and which one it is, for people."""
        return f"{self.folder.url} (sha256 {self.run.sha256[:12]})"

    def models(self, entry: str) -> Models:
        """Open an entry of models; each is read, verified, when it is asked for."""
        with naming_setting(self.setting):
            found = self._inputs().models(entry)

        def opened(key: str) -> Tensors:
            """Return the arrays of one model in the shapes that were saved."""
            with naming_setting(self.setting):
                return found.open(key)

        return Models(found.about, found.keys, opened)

    def settings(self, kind: type[R], entry: str) -> R:
        """Return the settings with which its models of an entry were made.

        Raises InputError: another version of this project wrote them.
        """
        try:
            return kind.model_validate_json(self.models(entry).about["config"])
        except ValidationError as error:
            raise InputError(
                f"{self.setting}: the settings of {self.named} are of another version of this project; train that run "
                "again with this one"
            ) from error

    def digests(self, entry: str) -> Mapping[str, str]:
        """Return key of a model -> digest of its file; nothing of it is read."""
        return self._inputs().parts(entry)

    def table(self, entry: str, columns: Sequence[str]) -> pa.Table:
        """Read columns of one of its own tables, or of one that it was made from.

        Raises InputError: damaged, or what it was made from is no longer there.
        """
        with naming_setting(self.setting):
            own = entry in self.manifest.entries
            return read_entry_table(self.folder, self.manifest if own else self._source(entry), entry, columns)

    def share(self, entry: str, shard: str) -> pa.Table:
        """Read what one shard of it wrote of a table."""
        with naming_setting(self.setting):
            return read_table(verified_file(self.folder, stage_folder(self.manifest.stage), self._files(entry)[shard]))

    def share_digest(self, entry: str, shard: str) -> str:
        """Return the digest of what one shard of it wrote of a table."""
        return self._files(entry)[shard].sha256

    def takes(self) -> list[OtherTake]:
        """Return the takes that it was made from, or that it holds."""
        rows = self.table("takes", OtherTake._fields).to_pylist()
        return [OtherTake(**row) for row in rows]

    def _files(self, entry: str) -> dict[str, FileEntry]:
        return dict(zip(shards_of(self.manifest), self.manifest.entries[entry].files, strict=True))

    def _inputs(self) -> StageInputs:
        stage = self.manifest.stage
        entries = {name: (stage, entry) for name, entry in self.manifest.entries.items()}
        return StageInputs(self.folder, stage, entries, {stage: shards_of(self.manifest)})

    def _source(self, entry: str) -> Manifest:
        """Return the output that holds an entry with the content from which this one was made."""
        fingerprint, stage = self.manifest.inputs.get(entry, ""), self.manifest.stage
        for writer in sorted(stages_of(self.folder), key=lambda name: name != "ingest"):
            found = find_manifest(self.folder, writer, entry, fingerprint)
            if found is not None:
                return found
        raise StoreError(
            f"{stage} of {self.named} was made from another {entry!r} than any that is left there; bring that root up "
            f"to date (the command of its last run, without `gc` in between) and name the {stage} that it writes"
        )


@contextmanager
def naming_setting(setting: str) -> Iterator[None]:
    """Turn what is wrong with another run into an InputError that names the setting; a failing disk stays one."""
    try:
        yield
    except StoreIOError:
        raise
    except StoreError as error:
        raise InputError(f"{setting}: {error}") from error


def open_other(run: OtherRun, stage: str) -> OtherOutput:
    """Open the output of a stage of another run whose manifest has the digest of the settings.

    It need not be the one that counts there, only be there.

    Raises InputError: there is none under that address, none of that digest, or its files are gone.
    """
    setting, found = SETTING[stage], list[str]()
    with naming_setting(setting):
        folder = open_folder(run.place)
        first = unless_damaged(current_key, folder, stage)
        for key in sorted(keys_of(folder, stage), key=lambda key: (key != first, key)):
            digest = manifest_sha256(folder, stage, key)
            found += [digest] if digest else []
            if digest != run.sha256:
                continue
            manifest = read_manifest(folder, stage, key)
            assert manifest is not None
            lacking, gone = lacking_entries(manifest, WANTED[stage]), missing_files(folder, stage, manifest)
            if lacking:
                what = ", ".join(lacking)
                raise StoreError(f"{stage} under {folder.url} has no {what}: an older version wrote it; run it again")
            if gone:
                raise StoreError(
                    f"{stage} under {folder.url} is damaged: {len(gone)} files are gone or of another size, e.g. "
                    f"{gone[0]}; bring it up to date by the command of its last run"
                )
            return OtherOutput(run, folder, manifest)
    if not found:
        raise InputError(
            f"{setting}: no output of the stage {stage} lies under {folder.url}; name the root of a run that has come "
            f"so far: it holds {manifest_path(stage, 'KEY')}"
        )
    raise InputError(
        f"{setting}: no output of the stage {stage} under {folder.url} has a manifest with the sha256 {run.sha256}; "
        f"there are {', '.join(found[:SHOWN])}, the first of which counts; name one of these, or bring that run back"
    )


def manifest_sha256(folder: Folder, stage: str, key: str) -> str | None:
    """Return the sha256 of the file of a manifest, as `sha256sum` prints it; None where there is none."""
    path = manifest_path(stage, key)
    return None if folder.size(path) is None else hashlib.sha256(folder.read(path)).hexdigest()


def outputs_that_count(place: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> dict[str, OtherRun]:
    """Return stage -> the output that counts under a root, for every stage that another run can start from.

    Raises:
        InputError: a stage has not run there.
        StoreError: an output is damaged, or was made from another version of its inputs than the one that counts.
    """
    folder, manifests = open_folder(place, allowed), dict[str, Manifest]()
    for stage in SETTING:
        manifest = current_manifest(folder, stage)
        if manifest is None:
            raise InputError(
                f"{folder.url} holds no output of the stage {stage}; name the root of a run that has come as far as "
                "predictor"
            )
        manifests[stage] = manifest
    entries = {name: (stage, entry) for stage, one in manifests.items() for name, entry in one.entries.items()}
    refuse_mixed(StageInputs(folder, "predictor", entries), manifests, folder.url)
    found = {stage: manifest_sha256(folder, stage, manifest.key) for stage, manifest in manifests.items()}
    return {stage: OtherRun(place=folder.url, sha256=sha256) for stage, sha256 in found.items() if sha256}


def starting_from(config: PipelineConfig, place: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> PipelineConfig:
    """Return settings under which a run inherits dev captures and folds, takes E_tau, and begins with the predictors.

    Raises:
        InputError: the other run has not come as far as its predictors.
        StoreError: see `outputs_that_count`.
    """
    found = outputs_that_count(place, allowed)
    return config.replace(
        ingest=config.ingest.replace(splits_of=found["ingest"]),
        alignment=config.alignment.replace(pretrained=found["alignment"]),
        predictor=config.predictor.replace(pretrained=found["predictor"]),
    )
