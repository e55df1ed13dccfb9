"""The store under two writers at once; kills and failing disks: tests/crashes."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from toy_stages import INGEST, TOYS, VECTOR, Row, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.arrow import arrow_schema
from schemas.artifacts import Manifest
from trajpilot_core.engine.execution.outcome import Outcome
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.garbage import verify
from trajpilot_core.store.manifest import current_manifest


def check_all_that_is_visible(root: Path) -> list[Manifest]:
    """Every manifest that counts is whole, and so is everything that was ever committed."""
    folder = open_folder(str(root))
    found = [manifest for stage in TOYS if (manifest := current_manifest(folder, stage)) is not None]
    assert verify(str(root), repair=False) == []
    return found


def both(work: Callable[[int], object]) -> Iterator[object]:
    """Run two callables side by side and hand back what they return or raise."""
    results: list[object] = [None, None]

    def run(k: int) -> None:
        try:
            results[k] = work(k)
        except (StoreError, AssertionError) as error:
            results[k] = error

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    yield from results


def test_two_runs_on_one_root_at_once_both_succeed_with_one_set_of_bytes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    run_toys(options(tmp_path / "whole", corpus))
    for k in range(10):
        root = tmp_path / f"root{k}"
        first, second = both(lambda _, root=root: run_toys(options(root, corpus)))
        assert isinstance(first, dict)
        assert isinstance(second, dict)
        assert [o.ref for o in first.values()] == [o.ref for o in second.values()]
        assert tree_bytes(root) == tree_bytes(tmp_path / "whole")
        assert not list(root.rglob(".tmp-*"))


def test_of_two_writers_that_disagree_one_wins_and_both_report_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A computation that is not reproducible to the byte, as on two kinds of GPU, where the stage cannot be locked."""
    monkeypatch.setattr("trajpilot_core.engine.execution.execute.stage_lock", lambda *_: contextlib.nullcontext())
    corpus = write_corpus(tmp_path / "corpus")
    meet = threading.Barrier(2)

    def noisy(k: int) -> Outcome:
        def read(work) -> None:
            work.sink.table("toy_takes", work_table(k))
            work.sink.models("toy_model", {"writer": str(k)})
            work.sink.document("toy.html", str(k).encode())
            work.sink.count(1, 1)
            meet.wait(20)

        return run_toys(options(tmp_path / "root", corpus), toys_with(INGEST, run=read), until="toy_ingest")[
            "toy_ingest"
        ]

    first, second = both(noisy)
    assert isinstance(first, Outcome)
    assert isinstance(second, Outcome)
    assert first.ref == second.ref
    assert len(check_all_that_is_visible(tmp_path / "root")) == 1


def work_table(k: int) -> pa.Table:
    """A takes table that differs between writers."""
    return pa.table({"take_id": ["take0"], "number": [k]}, schema=arrow_schema(Row))


def test_a_shard_of_other_columns_is_named_when_the_pack_is_built(tmp_path: Path) -> None:
    def mixed(work) -> None:
        for k, source in enumerate(work.pending):
            work.sink.shard(source.shard, work_table(k) if k else work_table(k).rename_columns(["a", "b"]), [], 1)

    with pytest.raises(StoreError, match="has the columns"):
        run_toys(options(tmp_path / "root", write_corpus(tmp_path / "corpus")), toys_with(VECTOR, run=mixed))
