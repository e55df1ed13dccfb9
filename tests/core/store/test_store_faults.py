"""The store under kill -9, failing disks and two writers at once."""

import contextlib
import errno
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from toy_stages import INGEST, TOYS, VECTOR, Row, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.arrow import arrow_schema
from schemas.artifacts import Manifest
from trajpilot_core.engine.execution.outcome import Outcome
from trajpilot_core.errors import StoreError, StoreIOError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.garbage import verify
from trajpilot_core.store.manifest import current_manifest

ROOTS = 30
CALLS = ("open", "write", "fsync", "replace", "link", "mkdir")


def check_all_that_is_visible(root: Path) -> list[Manifest]:
    """Every manifest that counts is whole, and so is everything that was ever committed."""
    folder = open_folder(str(root))
    found = [manifest for stage in TOYS if (manifest := current_manifest(folder, stage)) is not None]
    assert verify(str(root), repair=False) == []
    return found


class CountedCalls:
    """Count the operating system's writing calls below a folder and do something before each."""

    def __init__(self, below: Path, before: Callable[[int, str, Callable, tuple], None]) -> None:
        self.below, self.before, self.n = str(below), before, 0
        self.handles: set[int] = set()

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                patch.setattr(os, name, self.wrap(name, getattr(os, name)))
            yield

    def wrap(self, name: str, real: Callable) -> Callable:
        def watched(*args: object, **kwargs: object) -> object:
            mine = args[0] in self.handles if name in {"write", "fsync"} else self.below in str(args[0])
            if mine:
                self.n += 1
                self.before(self.n, name, real, args)
            result = real(*args, **kwargs)
            if name == "open" and mine:
                self.handles.add(result)
            return result

        return watched


def die(name: str, real: Callable, arguments: tuple) -> None:
    """End this process as kill -9 does; in a write, after half of the bytes."""
    if name == "write":
        handle, content = arguments
        real(handle, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def run_in_child(root: str, corpus: str, die_at: int) -> None:
    """Body of the process that is killed at its `die_at`-th call."""
    calls = CountedCalls(Path(root), lambda n, *call: die(*call) if n == die_at else None)
    with calls.counted():
        run_toys(options(Path(root), Path(corpus)))


@pytest.mark.slow
def test_36_kills_leave_no_torn_artifact_and_the_next_run_gives_the_bytes_of_an_undisturbed_one(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", takes=3)
    calls = CountedCalls(tmp_path / "whole", lambda *_: None)
    with calls.counted():
        run_toys(options(tmp_path / "whole", corpus))
    expected, visible = tree_bytes(tmp_path / "whole"), set()
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(["pytest", "safetensors.numpy", "trajpilot_core.engine.execution.execute"])
    for kill in range(ROOTS):
        root = tmp_path / f"killed{kill}"
        for extra in (0, 7) if kill % 5 == 0 else (0,):  # the second time among the leftovers of the first
            die_at = 1 + kill * (calls.n - 1) // ROOTS + extra
            child = processes.Process(target=run_in_child, args=(str(root), str(corpus), die_at))
            child.start()
            child.join(60)
            assert child.exitcode in ({-signal.SIGKILL} if extra == 0 else {-signal.SIGKILL, 0})
            visible.add(len(check_all_that_is_visible(root)))
        run_toys(options(root, corpus))
        found = tree_bytes(root)
        assert {name: found.get(name) for name in expected} == expected
    assert visible == {0, 1, 2, 3}


def attempt(root: Path, corpus: Path, fail_at: int, error: int, *, persistent: bool) -> tuple[bool, str]:
    """Run all toys with one injected fault; return whether it struck, and the named failure, empty on success."""

    def fail(n: int, *_: object) -> None:
        if n == fail_at or (persistent and n > fail_at):
            raise OSError(error, os.strerror(error))

    calls = CountedCalls(root, fail)
    with calls.counted():
        try:
            run_toys(options(root, corpus))
        except StoreIOError as failure:  # the kind that a task tries again
            return calls.n >= fail_at, str(failure)
    return calls.n >= fail_at, ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "persistent"),
    [(errno.EIO, False), pytest.param(errno.ENOSPC, True, marks=pytest.mark.campaign)],
    ids=["one failure", "disk full"],
)
def test_every_single_io_fault_ends_in_success_or_a_named_failure(tmp_path: Path, error: int, persistent: bool) -> None:
    corpus = write_corpus(tmp_path / "corpus", takes=2)
    root = tmp_path / "root"
    run_toys(options(root, corpus), until="toy_ingest")
    before = current_manifest(open_folder(str(root)), "toy_ingest")
    whole = tmp_path / "whole"
    run_toys(options(whole, corpus))
    fail_at, failures = 0, 0
    while True:
        fail_at += 1
        struck, failure = attempt(root, corpus, fail_at, error, persistent=persistent)
        if not struck:
            break
        failures += bool(failure)
        if failure:
            assert os.strerror(error) in failure
            assert str(root) in failure
        assert before in check_all_that_is_visible(root)
        for stage in ("toy_vectors", "toy_sum"):  # start over, the previous artifact stays
            leftovers = root / "artifacts" / stage
            if leftovers.exists():
                leftovers.rename(tmp_path / f"{stage}-{fail_at}")
    assert fail_at > 40
    assert failures > 0.5 * fail_at
    run_toys(options(root, corpus))
    expected = tree_bytes(whole)
    assert {name: tree_bytes(root).get(name) for name in expected} == expected


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
