"""Verify and watch: what is damaged, what repair may drop, and which changes of a corpus start a run."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from toy_stages import TOYS, run_toys, tree_bytes

from schemas.base import fingerprint
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.watch import noticed
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError, StoreError, StoreIOError, VersionError
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


CONFIG = PipelineConfig()
FIRST = next(iter(TOYS))


def looks(run: RunOptions, n: int, stages: Mapping[str, AnyStage] = TOYS) -> list[int]:
    """How many changes each of `n` looks tells."""
    return [len(noticed(stages, CONFIG, run)) for _ in range(n)]


def test_a_change_is_told_once_after_two_equal_looks(run: RunOptions, corpus: Path) -> None:
    stages = {FIRST: TOYS[FIRST]}
    run_toys(run, stages)
    (corpus / b"caf\xe9.txt".decode(errors="surrogateescape")).write_text("nothing reads it")
    assert looks(run, 3, stages) == [0, 0, 0]
    (corpus / "takes.txt").write_text("take0\ntake1\ntake9\n")
    (corpus / "take9.txt").write_text("4 5 6")
    assert noticed(stages, CONFIG, run) == ()
    (told,) = noticed(stages, CONFIG, run)
    assert told.startswith(f"{FIRST}: ")
    assert looks(run, 1, stages) == [0]
    run_toys(run, stages)
    assert looks(run, 1, stages) == [0]


def test_a_run_at_work_and_a_take_that_no_run_mends_start_no_other_run(run: RunOptions, corpus: Path) -> None:
    """Stage after stage becomes fresh while the files stay as they are: no news."""
    assert looks(run, 2) == [0, 3]
    for until in TOYS:
        run_toys(run, until=until)
        assert looks(run, 3) == [0, 0, 0], until
    (corpus / "take1.txt").unlink()
    assert [n > 0 for n in looks(run, 4)] == [False, True, False, False]


def test_a_damaged_note_is_forgotten_and_a_data_root_that_is_gone_is_an_error(run: RunOptions) -> None:
    """A share that is not mounted must not start a run."""
    looks(run, 1)
    (Path(run.root) / "watch.json").write_text("{")
    assert looks(run, 2) == [0, 3]
    with pytest.raises(InputError, match="is no folder"):
        noticed(TOYS, CONFIG, run.replace(data_root=f"{run.data_root}/nowhere"))
