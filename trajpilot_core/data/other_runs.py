"""Outputs of another run, opened read-only: those that the settings name by a digest, and their inputs.

Every byte is checked against a manifest, as in our own store (store/reading.py). Does not import torch.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import pyarrow as pa
from pydantic import ValidationError

from schemas.artifacts import Manifest
from schemas.base import Record
from schemas.config import PipelineConfig
from schemas.places import OtherRun
from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import (
    current_manifest,
    lacking_entries,
    manifest_path,
    missing_files,
    read_manifest,
    shards_of,
    stage_folder,
    verified_bytes,
)
from trajpilot_core.store.parquet import read_table
from trajpilot_core.store.reading import Inputs, find_manifest, keys_of, read_entry_table, refuse_mixed, stages_of
from trajpilot_core.store.tensors import Models

R = TypeVar("R", bound=Record)
SETTING = {"ingest": "ingest.splits_of", "alignment": "alignment.pretrained", "predictor": "predictor.pretrained"}
"""Stage -> the setting that names its output."""
WANTED = {"ingest": ("takes",), "alignment": ("e_tau", "alignment_curves", "folds"), "predictor": ("predictors",)}
"""Stage -> entries of its output that are read."""
SHOWN = 5
"""Names that an error lists."""


def shown(names: Sequence[str]) -> str:
    """Return the first few names, and how many more there are."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


class OtherTake(NamedTuple):
    """A take of another run."""

    take_id: str
    capture: str
    split: str


@dataclass(frozen=True)
class OtherOutput:
    """One output of another run; faults are raised as an InputError that names the setting.

    An output names its inputs by fingerprints, and only inputs with these are read with it: an output is never combined
    with takes other than those that it was made from.
    """

    run: OtherRun
    folder: Folder
    manifest: Manifest

    @property
    def setting(self) -> str:
        """Setting that names this output."""
        return SETTING[self.manifest.stage]

    @property
    def named(self) -> str:
        """Location and digest of the output, for messages."""
        return f"{self.folder.url} (sha256 {self.run.sha256[:12]})"

    def models(self, entry: str) -> Models:
        """Open an entry of models; each model is read and verified on access."""
        with naming_setting(self.setting):
            return self._inputs().models(entry)

    def settings(self, kind: type[R], entry: str) -> R:
        """Return the settings of the models of an entry.

        Raises InputError: another version of this project wrote them.
        """
        try:
            return kind.model_validate_json(self.models(entry).about["config"])
        except ValidationError as error:
            raise InputError(
                f"{self.setting}: another version of this project wrote the settings of {self.named}; train that run "
                "again with this version"
            ) from error

    def digests(self, entry: str) -> Mapping[str, str]:
        """Return key of a model, or shard of a table -> digest of its file, without reading it."""
        return self._inputs().parts(entry)

    def table(self, entry: str, columns: Sequence[str]) -> pa.Table:
        """Read columns of one of its own tables, or of one of its inputs.

        Raises InputError: the table is damaged, or the input no longer exists.
        """
        manifest, stage = self.manifest, self.manifest.stage
        with naming_setting(self.setting):
            if entry in manifest.entries:
                return read_entry_table(self.folder, manifest, entry, columns)
            for writer in sorted(stages_of(self.folder), key=lambda name: name != "ingest"):
                source = find_manifest(self.folder, writer, entry, manifest.inputs.get(entry, ""))
                if source is not None:
                    return read_entry_table(self.folder, source, entry, columns)
            raise StoreError(
                f"{stage} of {self.named} was made from {entry!r} that no longer exists; bring that root up to date "
                f"(the command of its last run, without `gc` in between) and name the {stage} that it writes"
            )

    def share(self, entry: str, shard: str) -> pa.Table:
        """Read the part of a table that one shard wrote."""
        at = shards_of(self.manifest).index(shard)
        with naming_setting(self.setting):
            file = self.manifest.entries[entry].files[at]
            return read_table(verified_bytes(self.folder, stage_folder(self.manifest.stage), file))

    def takes(self) -> list[OtherTake]:
        """Return the takes in its inputs, or in the output itself."""
        return [OtherTake(**row) for row in self.table("takes", OtherTake._fields).to_pylist()]

    def _inputs(self) -> Inputs:
        stage = self.manifest.stage
        entries = {name: (stage, entry) for name, entry in self.manifest.entries.items()}
        return Inputs(self.folder, stage, entries, {stage: shards_of(self.manifest)})


@contextmanager
def naming_setting(setting: str) -> Iterator[None]:
    """Turn a StoreError of another run into an InputError that names the setting, except for disk failures."""
    try:
        yield
    except StoreIOError:
        raise
    except StoreError as error:
        raise InputError(f"{setting}: {error}") from error


def open_other(run: OtherRun, stage: str) -> OtherOutput:
    """Open the output of a stage of another run whose manifest has the digest in the settings.

    It need not be the current output of that run.

    Raises InputError: there is no output at that address, none with that digest, or its files are missing.
    """
    with naming_setting(SETTING[stage]):
        folder = open_folder(run.place)
        key_of = {manifest_sha256(folder, stage, key): key for key in keys_of(folder, stage)}
        manifest = read_manifest(folder, stage, key_of[run.sha256]) if run.sha256 in key_of else None
        if manifest is None:
            raise StoreError(
                f"no output of the stage {stage} under {folder.url} has a manifest with the sha256 {run.sha256}; there "
                f"are {', '.join(filter(None, key_of)) or 'none'}: name one of them, or the root of a run that has "
                "completed that stage"
            )
        lacking, gone = lacking_entries(manifest, WANTED[stage]), missing_files(folder, stage, manifest)
        if lacking:
            what = ", ".join(lacking)
            raise StoreError(f"{stage} under {folder.url} has no {what}: an older version wrote it; run it again")
        if gone:
            raise StoreError(
                f"{stage} under {folder.url} is damaged: {len(gone)} files are missing or have another size, e.g. "
                f"{gone[0]}; run the command of its last run again"
            )
        return OtherOutput(run, folder, manifest)


def manifest_sha256(folder: Folder, stage: str, key: str) -> str | None:
    """Return the sha256 of the file of a manifest, as printed by `sha256sum`; None if there is none."""
    path = manifest_path(stage, key)
    return None if folder.size(path) is None else hashlib.sha256(folder.read(path)).hexdigest()


def outputs_that_count(place: str) -> dict[str, OtherRun]:
    """Return stage -> current output under a root, for every stage that another run can start from.

    Raises:
        InputError: a stage has not run there.
        StoreError: an output is damaged, or was not made from the current inputs.
    """
    folder, manifests = open_folder(place), dict[str, Manifest]()
    for stage in SETTING:
        manifest = current_manifest(folder, stage)
        if manifest is None:
            raise InputError(
                f"{folder.url} contains no output of the stage {stage}; name the root of a run that has completed the "
                "stage predictor"
            )
        manifests[stage] = manifest
    entries = {name: (stage, entry) for stage, m in manifests.items() for name, entry in m.entries.items()}
    refuse_mixed(Inputs(folder, "predictor", entries), manifests, folder.url)
    digests = {stage: manifest_sha256(folder, stage, manifest.key) for stage, manifest in manifests.items()}
    return {stage: OtherRun(place=folder.url, sha256=sha256) for stage, sha256 in digests.items() if sha256}


def starting_from(config: PipelineConfig, place: str) -> PipelineConfig:
    """Return settings with which a run inherits dev captures, folds and E_tau, and starts from the predictors.

    Raises:
        InputError: the other run has not completed the stage predictor.
        StoreError: see `outputs_that_count`.
    """
    outputs = outputs_that_count(place)
    return config.replace(
        ingest=config.ingest.replace(splits_of=outputs["ingest"]),
        alignment=config.alignment.replace(pretrained=outputs["alignment"]),
        predictor=config.predictor.replace(pretrained=outputs["predictor"]),
    )
