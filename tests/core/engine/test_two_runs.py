"""Two runs on one root: one computes while the other waits; without the lock both write, and one output counts."""

import multiprocessing
import os
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from toy_stages import (
    INGEST,
    VECTOR,
    Row,
    options,
    read_vectors_of_takes,
    run_toys,
    toys_with,
    tree_bytes,
)

import trajpilot_core.engine.execution.execute as executing
import trajpilot_core.store.lock as locks
from schemas.arrow import arrow_schema
from schemas.artifacts import ArtifactRef
from schemas.config import RunOptions
from trajpilot_core.engine.stage import Work
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import stage_lock
from trajpilot_core.store.manifest import current_manifest

LIMIT_S = 120.0
STAGE = "toy_vectors"


@pytest.fixture
def run(run: RunOptions) -> RunOptions:
    """A root whose first stage is done."""
    run_toys(run, until="toy_ingest")
    return run


def bytes_of_one_run(run: RunOptions) -> dict[str, bytes]:
    root = Path(run.root).with_name("alone")
    run_toys(run.replace(root=str(root)), until=STAGE)
    return tree_bytes(root)


@pytest.mark.parametrize("is_locked", [True, False], ids=["ours", "planted"])
def test_simultaneous_runs_compute_once_and_twice_without_the_lock(
    run: RunOptions, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    """The bytes are right all the same, as on an object store."""
    if not is_locked:
        monkeypatch.setattr(executing, "stage_lock", lambda *_: nullcontext())
    both, computed = threading.Barrier(2, timeout=LIMIT_S), []

    def computing(work: Work) -> None:
        computed.append(len(work.pending))
        time.sleep(0.2) if is_locked else both.wait()
        read_vectors_of_takes(work)

    stages = toys_with(VECTOR, run=computing)
    with ThreadPoolExecutor(2) as pair:
        outcomes = list(pair.map(lambda _: run_toys(run, stages, until=STAGE)[STAGE], range(2)))
    assert computed == ([4] if is_locked else [4, 4])
    assert sorted(outcome.cached for outcome in outcomes) == [False, is_locked]
    assert len(list(Path(run.root, "artifacts", STAGE).glob("*/manifest.json"))) == 1
    assert tree_bytes(Path(run.root)) == bytes_of_one_run(run)


def test_the_second_run_takes_over_when_the_first_is_killed(run: RunOptions, tmp_path: Path) -> None:
    begun = tmp_path / "begun"

    def endless(work: Work) -> None:
        read_vectors_of_takes(work)
        begun.touch()
        time.sleep(3600)

    fork = multiprocessing.get_context("fork")
    first = fork.Process(target=run_toys, args=(run, toys_with(VECTOR, run=endless)))
    first.start()
    end = time.monotonic() + LIMIT_S
    while not begun.exists() and time.monotonic() < end:
        time.sleep(0.01)
    with ThreadPoolExecutor(1) as second:
        done = second.submit(run_toys, run, until=STAGE)
        time.sleep(0.5)
        assert not done.done()
        os.kill(first.pid, signal.SIGKILL)
        assert done.result(LIMIT_S)[STAGE].message() == "reused 4, computed 0, removed 0, rejected 0"
    first.join()
    assert tree_bytes(Path(run.root)) == bytes_of_one_run(run)


def test_who_waits_says_who_holds_the_stage_and_since_when_and_other_stages_do_not_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks.time, "sleep", Mock(side_effect=[None, None, KeyboardInterrupt]))
    caplog.set_level("INFO", logger="trajpilot")
    root = str(tmp_path)
    with stage_lock(root, "features"), stage_lock(root, "trajectories"):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock-features", ".lock-trajectories"]
        with pytest.raises(KeyboardInterrupt), stage_lock(root, "features"):
            pytest.fail("two held one stage")
    assert len(caplog.messages) == 1
    assert re.search(f"waiting: process {os.getpid()} on .*, started 20", caplog.text)
    with stage_lock(root, "features"):
        pass


def test_of_two_writers_that_disagree_one_wins_and_both_report_its_output(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A computation that is not reproducible to the byte, as on two kinds of GPU, where the stage cannot be locked."""
    monkeypatch.setattr(executing, "stage_lock", lambda *_: nullcontext())
    meet = threading.Barrier(2)

    def noisy(k: int) -> ArtifactRef:
        def read(work: Work) -> None:
            table = pa.table({"take_id": ["take0"], "number": [k]}, schema=arrow_schema(Row))
            work.sink.table("toy_takes", table)
            work.sink.models("toy_model", {"writer": str(k)})
            work.sink.document("toy.html", str(k).encode())
            work.sink.count(1, 1)
            meet.wait(20)

        stages = toys_with(INGEST, run=read)
        return run_toys(options(tmp_path / "root", corpus), stages, until="toy_ingest")["toy_ingest"].ref

    with ThreadPoolExecutor(2) as pair:
        first, second = pair.map(noisy, range(2))
    assert first == second
    assert current_manifest(open_folder(str(tmp_path / "root")), "toy_ingest") is not None
    assert verify(str(tmp_path / "root"), repair=False) == []
