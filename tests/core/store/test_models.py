"""Entries of models: one file each, equal bytes whatever the order, and nothing is read before it is asked for."""

from pathlib import Path

import numpy as np
import pytest
from toy_stages import INGEST

from schemas.artifacts import Entry
from trajpilot_core.engine.sink import Sink
from trajpilot_core.errors import StoreError
from trajpilot_core.store import manifest
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.manifest import entry_of
from trajpilot_core.store.reading import Inputs

KEYS = ("final/s0/traj", "fold0/s0/traj", "final/s0/no_traj")
ENTRY, READER = "toy_model", "toy_sum"


def sink_in(root: Path) -> Sink:
    return Sink(LocalFolder(str(root)), INGEST.name, INGEST.writes, "key")


def number_of(key: str) -> int:
    """What a model's weights are filled with."""
    return sum(key.encode())


def written(root: Path, keys: tuple[str, ...] = KEYS, size: int = 6) -> Entry:
    """An entry with one model per key; its numbers follow from the key."""
    sink = sink_in(root)
    for key in keys:
        sink.model(ENTRY, key, {"w": np.full((2, size // 2), number_of(key), np.float32), "b": np.zeros((), np.int64)})
    sink.models(ENTRY, {"config": "{}", "seeds": "1"})
    return sink.entries[ENTRY]


def test_every_model_is_a_file_which_is_opened_when_it_is_asked_for_and_comes_back_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, read, real = written(tmp_path), list[str](), LocalFolder.read
    monkeypatch.setattr(
        LocalFolder, "read", lambda folder, path: (read.append(path.split("/", 2)[2]), real(folder, path))[1]
    )
    models = Inputs(LocalFolder(str(tmp_path)), READER, {ENTRY: (INGEST.name, entry)}).models(ENTRY)
    about, *files = entry.files
    assert [file.key for file in files] == sorted(KEYS)
    assert (models.keys, models.about) == (tuple(sorted(KEYS)), {"config": "{}", "seeds": "1"})
    assert read == [about.name]
    for file in files:
        found = models.read(file.key)
        assert read[-1] == file.name
        assert (found["b"].dtype, found["b"].shape) == (np.int64, ())
        np.testing.assert_array_equal(found["w"], np.full((2, 3), number_of(file.key), np.float32), strict=True)
    assert len(read) == 4
    with pytest.raises(StoreError, match="no model 'final/s1/traj' in the entry, which has final/s0/no_traj, "):
        models.read("final/s1/traj")


def test_another_key_or_other_numbers_give_another_fingerprint_and_another_order_does_not(tmp_path: Path) -> None:
    whole = written(tmp_path)
    assert written(tmp_path / "other", KEYS[::-1]) == whole
    renamed = [file.replace(key=file.key and f"{file.key}2") for file in whole.files]
    assert entry_of("models", renamed).fingerprint != whole.fingerprint
    assert written(tmp_path, size=8).fingerprint != whole.fingerprint
    assert written(tmp_path, KEYS[:2]).fingerprint != whole.fingerprint


def test_a_model_without_a_key_with_one_that_is_taken_or_after_the_end_of_its_entry_is_refused(tmp_path: Path) -> None:
    sink = sink_in(tmp_path)
    sink.model(ENTRY, KEYS[0], {})
    for key, message in (("", "without a key"), (KEYS[0], f"the model '{KEYS[0]}' of .* twice")):
        with pytest.raises(StoreError, match=message):
            sink.model(ENTRY, key, {})
    sink.models(ENTRY, {})
    for write in (lambda: sink.model(ENTRY, KEYS[1], {}), lambda: sink.models(ENTRY, {})):
        with pytest.raises(StoreError, match="writes 'toy_model' twice"):
            write()


def test_a_file_that_is_too_large_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert manifest.LARGEST_FILE_BYTES == 2_000_000_000
    monkeypatch.setattr(manifest, "LARGEST_FILE_BYTES", 1000)
    sink = sink_in(tmp_path)
    sink.model(ENTRY, KEYS[0], {"w": np.zeros(100, np.float32)})
    with pytest.raises(StoreError, match=r"toy_ingest writes a file .* of 4,\d+ bytes; at most 1,000 are allowed"):
        sink.model(ENTRY, KEYS[1], {"w": np.zeros(1000, np.float32)})
    assert len(list(tmp_path.rglob("data-*"))) == 1
