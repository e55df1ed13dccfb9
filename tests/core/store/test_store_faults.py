"""The store under two writers at once; kills and failing disks: tests/crashes."""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from toy_stages import INGEST, VECTOR, Row, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.arrow import arrow_schema
from trajpilot_core.engine.execution.outcome import Outcome
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.garbage import verify
from trajpilot_core.store.manifest import current_manifest


def both(work: Callable[[int], object]) -> list:
    """What a callable returns for 0 and for 1, side by side."""
    with ThreadPoolExecutor(2) as pair:
        return list(pair.map(work, range(2)))


def test_two_runs_on_one_root_at_once_both_succeed_with_one_set_of_bytes(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    run_toys(options(tmp_path / "whole", corpus))
    for k in range(10):
        root = tmp_path / f"root{k}"
        first, second = both(lambda _, root=root: run_toys(options(root, corpus)))
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

        done = run_toys(options(tmp_path / "root", corpus), toys_with(INGEST, run=read), until="toy_ingest")
        return done["toy_ingest"]

    first, second = both(noisy)
    assert first.ref == second.ref
    assert current_manifest(open_folder(str(tmp_path / "root")), "toy_ingest") is not None
    assert verify(str(tmp_path / "root"), repair=False) == []


def work_table(k: int) -> pa.Table:
    """A takes table that differs between writers."""
    return pa.table({"take_id": ["take0"], "number": [k]}, schema=arrow_schema(Row))


def test_a_shard_of_other_columns_is_named_when_the_pack_is_built(tmp_path: Path) -> None:
    def mixed(work) -> None:
        for k, source in enumerate(work.pending):
            work.sink.shard(source.shard, work_table(k) if k else work_table(k).rename_columns(["a", "b"]), [], 1)

    with pytest.raises(StoreError, match="has the columns"):
        run_toys(options(tmp_path / "root", write_corpus(tmp_path / "corpus")), toys_with(VECTOR, run=mixed))
