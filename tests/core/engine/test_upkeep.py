"""Verify: what is damaged, and what repair may drop."""

import json
from pathlib import Path

import pytest
from toy_stages import run_toys, tree_bytes

from schemas.base import fingerprint
from schemas.config import RunOptions
from trajpilot_core.errors import StoreError, StoreIOError, VersionError
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import LocalFolder, open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table


def file_of_vectors(run: RunOptions, number: int) -> Path:
    manifest = current_manifest(open_folder(run.root), "toy_vectors")
    return Path(run.root) / "artifacts/toy_vectors" / manifest.entries["toy_vectors"].files[number].name


def test_verify_finds_damage_and_repair_makes_the_next_run_mend_it(run: RunOptions) -> None:
    run_toys(run)
    root, data = Path(run.root), file_of_vectors(run, 2)
    before = tree_bytes(root)
    assert verify(run.root, repair=False) == []
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    found = verify(run.root, repair=True)
    assert [("is damaged" in damage.problem, len(damage.records)) for damage in found] == [(True, 2)], "shard, manifest"
    assert run_toys(run)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    assert tree_bytes(root) == before
    assert verify(run.root, repair=False) == []


def test_a_damaged_shard_is_named_by_the_reader_of_its_table(run: RunOptions) -> None:
    run_toys(run)
    folder = open_folder(run.root)
    manifest = current_manifest(folder, "toy_vectors")
    table, files = read_entry_table(folder, manifest, "toy_vectors"), manifest.entries["toy_vectors"].files
    assert table.num_rows == sum(file.rows for file in files)
    assert len(files) > 1
    shard = file_of_vectors(run, 0)
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError, match=shard.name):
        read_entry_table(folder, manifest, "toy_vectors")


def test_repair_never_drops_what_could_not_be_read(run: RunOptions, monkeypatch) -> None:
    """A disk that does not answer is no damage: what is on it may be whole."""
    run_toys(run)
    before = tree_bytes(Path(run.root))
    kept = LocalFolder.read

    def failing(folder: LocalFolder, path: str) -> bytes:
        if "/toy_vectors/" in path:
            raise StoreIOError(f"cannot read {path}: Input/output error")
        return kept(folder, path)

    monkeypatch.setattr(LocalFolder, "read", failing)
    found = verify(run.root, repair=True)
    monkeypatch.undo()
    assert found
    assert not any(item.is_sure for item in found)
    assert tree_bytes(Path(run.root)) == before


def test_repair_never_drops_what_another_version_wrote(run: RunOptions) -> None:
    done = run_toys(run)
    path = Path(done["toy_sum"].ref.uri)
    body = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "sha256"}
    path.write_text(json.dumps({**body, "new": 1, "sha256": fingerprint({**body, "new": 1})}))
    with pytest.raises(VersionError, match="undamaged, but another version wrote it"):
        current_manifest(open_folder(run.root), "toy_sum")
    assert [item.is_sure for item in verify(run.root, repair=True)] == [False, False]
    assert path.exists()
    assert not run_toys(run)["toy_sum"].cached
