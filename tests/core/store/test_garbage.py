"""gc: what nothing refers to goes, what anything refers to stays, and nothing goes while somebody works."""

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import toy_stages as toy
from toy_stages import TOYS, VECTOR, features_config, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.errors import StoreError, StoreIOError
from trajpilot_core.store import garbage, inventory, lock
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import LocalFolder, open_folder
from trajpilot_core.store.garbage import find_garbage, paths_in_use, remove_garbage
from trajpilot_core.store.lock import alone, in_use, root_lock
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunOptions:
    """A corpus, and a root in which nothing was done yet; nobody waits for the disk and file times."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    monkeypatch.setattr(inventory, "SETTLE_S", 0.0)
    return options(tmp_path / "root", write_corpus(tmp_path / "corpus"))


@pytest.fixture
def run(fresh: RunOptions) -> RunOptions:
    """A root with a history: a run, another setting and back, a take changed, a take removed."""
    run_toys(fresh)
    run_toys(fresh, config=features_config(batch=3))
    Path(fresh.data_root, "take1.txt").write_text("7 7")
    run_toys(fresh)
    Path(fresh.data_root, "takes.txt").write_text("take0 take1 take2")
    run_toys(fresh)
    return fresh


def is_whole(run: RunOptions) -> bool:
    """Every stage is fresh, every byte is as it was committed, every table can be read, and a run computes nothing."""
    folder = open_folder(run.root)
    for manifest in (current_manifest(folder, stage) for stage in TOYS):
        for name, entry in manifest.entries.items() if manifest else ():
            if entry.kind == "table":
                read_entry_table(folder, manifest, name)
    fresh = all(row.state == "fresh" for row in plan(TOYS, PipelineConfig(), run))
    return fresh and verify(run.root, repair=False) == [] and all(o.cached for o in run_toys(run).values())


def age(hours: float, *paths: Path) -> None:
    """Make files look as if they had been written so long ago."""
    written = time.time() - 3600 * hours
    for path in paths:
        os.utime(path, (written, written), follow_symlinks=False)


def unused(run: RunOptions) -> set[str]:
    return {path for group in find_garbage(run.root) for path in group.files}


def test_outputs_of_before_go_and_everything_that_counts_stays(run: RunOptions) -> None:
    before = tree_bytes(Path(run.root))
    found = unused(run)
    assert "shards" in {path.split("/")[2] for path in found}, "outputs of before are the rest"
    assert tree_bytes(Path(run.root)) == before
    assert {path for group in remove_garbage(run.root, 0.0) for path in group.files} == found
    gone = set(before) - set(tree_bytes(Path(run.root)))
    assert gone == {name for name in found if "run_record" not in name}
    assert is_whole(run)
    assert find_garbage(run.root) == []
    assert len(list((Path(run.root) / "artifacts/toy_vectors/shards").iterdir())) == 3


def test_a_gc_that_forgets_shards_is_found_out(run: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(folder: LocalFolder) -> set[str]:
        return {path for path in paths_in_use(folder) if "/shards/" not in path}

    monkeypatch.setattr(garbage, "paths_in_use", forgetful)
    remove_garbage(run.root, 0.0)
    with pytest.raises(StoreError, match="No such file"):
        is_whole(run)


def test_what_an_output_that_counts_was_made_from_stays_although_it_counts_no_longer(fresh: RunOptions) -> None:
    old = Path(run_toys(fresh)["toy_vectors"].ref.uri)
    assert find_garbage(fresh.root) == []
    Path(fresh.data_root, "take1.txt").write_text("7 7")
    run_toys(fresh, until="toy_vectors")  # toy_sum still rests on the vectors of the first run
    assert find_garbage(fresh.root) == []
    run_toys(fresh)
    assert str(old.relative_to(fresh.root)) in unused(fresh)


def test_young_things_stay_temporaries_and_scratch_too(run: RunOptions) -> None:
    root = Path(run.root)
    (root / "artifacts/toy_sum/.tmp-1-ab").write_bytes(b"12")
    (root / ".tmp-2-cd").write_bytes(b"3")
    (root / "scratch/toy_sum-0123456789abcdef").mkdir(parents=True)
    (root / "scratch/toy_sum-0123456789abcdef/step.safetensors").write_bytes(b"x" * 10)
    (root / "scratch/killed-before-it-wrote/anything").mkdir(parents=True)
    assert remove_garbage(run.root, 1.0) == []
    young = {group.name for group in find_garbage(run.root)}
    scratch = "scratch/toy_sum-0123456789abcdef"
    assert {".tmp-2-cd", scratch, "artifacts/toy_sum", "artifacts/toy_vectors"} <= young
    age(30, *root.rglob("*"))
    assert {group.name for group in remove_garbage(run.root, 24.0)} == young
    assert list(root.rglob(".tmp-*")) == []
    assert list((root / "scratch").iterdir()) == []
    assert is_whole(run)


def test_a_shard_written_today_keeps_its_older_neighbours_file_alive(fresh: RunOptions) -> None:
    """Age is that of the youngest of a stage: half an output is worse than none."""
    run_toys(fresh, config=features_config(batch=3))
    run_toys(fresh)
    data = next(Path(fresh.root).glob("artifacts/toy_vectors/*/data-*.parquet"))
    age(30, *data.parent.glob("data-*"))
    assert remove_garbage(fresh.root, 24.0) == []


def test_files_that_are_not_the_stores_and_links_are_left_alone(run: RunOptions, tmp_path: Path) -> None:
    outside, stage, scratch = tmp_path / "precious", Path(run.root, "artifacts/toy_sum"), Path(run.root, "scratch")
    (outside / "empty").mkdir(parents=True)
    precious = outside / ("data-" + "0" * 64 + ".parquet")
    precious.write_bytes(b"mine")
    (stage / "notes.txt").write_text("mine")
    (stage / "shards").mkdir()
    (stage / "shards/linked").symlink_to(outside)
    (stage / ("data-" + "1" * 64 + ".parquet")).symlink_to(precious)
    scratch.rmdir()
    scratch.symlink_to(outside)
    remove_garbage(run.root, 0.0)
    assert precious.read_bytes() == b"mine"
    assert all(path.exists() for path in (outside / "empty", stage / "notes.txt", stage / "shards/linked"))


def test_gc_is_refused_where_a_current_output_is_damaged(run: RunOptions) -> None:
    root = Path(run.root)
    (root / "artifacts/toy_vectors/current").write_text("{}")
    before = tree_bytes(root)
    with pytest.raises(StoreError, match="toy_vectors/current is damaged"):
        remove_garbage(run.root, 0.0)
    assert tree_bytes(root) == before


def test_gc_is_refused_while_a_stage_works_without_the_lock_of_a_run(fresh: RunOptions) -> None:
    """A worker of a pool runs single stages; what it wrote so far is referenced by nothing yet."""
    run, works, go_on = fresh, threading.Event(), threading.Event()

    def slow(work) -> None:
        toy.read_vectors_of_takes(work)
        works.set()
        assert go_on.wait(60)

    stage = threading.Thread(target=run_toys, args=(run, toys_with(VECTOR, run=slow)))
    stage.start()
    assert works.wait(60)
    try:
        with pytest.raises(StoreError, match="a stage is running"):
            remove_garbage(run.root, 0.0)
        assert any("/shards/" in path for path in unused(run))
    finally:
        go_on.set()
        stage.join()
    assert is_whole(run)


def test_without_the_lock_of_the_stage_gc_would_not_be_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the test above catches: a stage that takes no share of the root."""
    monkeypatch.setattr(lock, "_wait", lambda *_: None)
    with in_use(str(tmp_path), 0.0), alone(str(tmp_path)):
        assert True


def test_an_object_store_and_a_root_that_cannot_be_written_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match="not a folder of this machine"):
        remove_garbage("s3://bucket/prefix", 0.0)
    monkeypatch.setattr(Path, "open", Mock(side_effect=OSError(30, "Read-only file system")))
    with pytest.raises(StoreIOError, match=r"cannot lock .*lock.*Read-only file system"):
        remove_garbage(str(tmp_path), 0.0)


def test_a_root_has_one_run_or_one_gc_at_a_time_and_who_comes_later_learns_who_holds_it_or_waits(
    tmp_path: Path,
) -> None:
    root = str(tmp_path)
    held = f"in use by process {os.getpid()} on .*, started 20"
    with root_lock(root, 0.0):
        with pytest.raises(StoreError, match=held):
            remove_garbage(root, 0.0)
        with pytest.raises(StoreError, match=held), root_lock(root, 0.0):
            pytest.fail("two runs hold one root")
    with alone(root), pytest.raises(StoreError, match="`gc` is running"), in_use(root, 0.0):
        pytest.fail("a stage worked beside gc")
    for first, second in ((alone, in_use), (lambda root: root_lock(root, 0.0), root_lock)):
        with first(root):
            waiting = threading.Thread(target=lambda second=second: second(root, 20.0).__enter__())
            waiting.start()
            time.sleep(0.3)
            assert waiting.is_alive()
        waiting.join(10)
        assert not waiting.is_alive()


def test_a_gc_that_is_killed_leaves_nothing_torn(run: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many files it removed before it died: what has a manifest has its files."""
    kept = Path.unlink
    for n_removed in range(1, 12):
        turns = iter(range(n_removed))

        def dying(path: Path, missing_ok: bool = False, turns: Iterator[int] = turns) -> None:
            if next(turns, None) is None:
                raise KeyboardInterrupt
            kept(path, missing_ok=missing_ok)

        with monkeypatch.context() as patched, contextlib.suppress(KeyboardInterrupt):
            patched.setattr(Path, "unlink", dying)
            remove_garbage(run.root, 0.0)
        assert verify(run.root, repair=False) == []
    remove_garbage(run.root, 0.0)
    assert is_whole(run)
