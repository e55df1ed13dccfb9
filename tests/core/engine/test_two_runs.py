"""Two runs of one stage at the same time: the work is done once, whoever of them survives; one output counts."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from checkout import CHECKOUT
from toy_stages import (
    INGEST,
    VECTOR,
    Row,
    options,
    read_vectors_of_takes,
    run_toys,
    toys_with,
    tree_bytes,
    write_corpus,
)

import trajpilot_core.engine.execution.execute as executing
import trajpilot_core.store.lock as locks
from schemas.arrow import arrow_schema
from schemas.artifacts import ArtifactRef
from trajpilot_core.engine.stage import Work
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.lock import stage_lock
from trajpilot_core.store.manifest import current_manifest

SCRIPT = CHECKOUT / "tests" / "fixtures" / "stage_at_once.py"
PAIRS = 5
LIMIT_S = 120.0


def begin() -> subprocess.Popen[str]:
    """Start a process that runs the stage for each line that it is given."""
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([sys.executable, str(SCRIPT)], text=True, **pipes)


def order(process: subprocess.Popen[str], *words: Path) -> None:
    """Have the stage run once."""
    process.stdin.write(" ".join(map(str, words)) + "\n")
    process.stdin.flush()


def done(process: subprocess.Popen[str]) -> None:
    """Wait until the ordered run has ended."""
    assert process.stdout.readline() == "done\n"


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate(timeout=LIMIT_S)


def ready(folder: Path, name: str) -> tuple[Path, Path]:
    """A root whose first stage is done, and its corpus."""
    root, corpus = folder / name, write_corpus(folder / f"{name}-corpus", takes=3)
    run_toys(options(root, corpus), until="toy_ingest")
    return root, corpus


def bytes_of_one_run(folder: Path) -> dict[str, bytes]:
    root, corpus = ready(folder, "alone")
    run_toys(options(root, corpus), until="toy_vectors")
    return tree_bytes(root)


def waited(path: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.timeout(600)
def test_simultaneous_runs_compute_and_commit_once_each(tmp_path: Path) -> None:
    wanted = bytes_of_one_run(tmp_path)
    pair = [begin(), begin()]
    try:
        for k in range(PAIRS):
            root, corpus = ready(tmp_path, f"pair{k}")
            log = tmp_path / f"pair{k}.log"
            for process in pair:
                order(process, root, corpus, log)
            for process in pair:
                done(process)
            assert sorted(log.read_text().split("\n")) == ["", "computes 3", "found", "made"]
            assert len(list((root / "artifacts" / "toy_vectors").glob("*/manifest.json"))) == 1
            assert tree_bytes(root) == wanted
    finally:
        for process in pair:
            end(process)


@pytest.mark.timeout(600)
def test_the_second_run_takes_over_when_the_first_is_killed(tmp_path: Path) -> None:
    root, corpus = ready(tmp_path, "root")
    log, begun = tmp_path / "log", tmp_path / "begun"
    first, second = begin(), begin()
    try:
        order(first, root, corpus, log, begun)
        waited(begun)
        order(second, root, corpus, log)
        assert any("waiting: process" in line for line in second.stderr)
        os.kill(first.pid, signal.SIGKILL)
        done(second)
    finally:
        end(first)
        end(second)
    assert log.read_text().split("\n")[0] == "computes 3"
    assert tree_bytes(root) == bytes_of_one_run(tmp_path)


def test_who_waits_says_who_holds_the_stage_and_since_when(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = Mock(side_effect=[None, None, KeyboardInterrupt])
    monkeypatch.setattr(locks.time, "sleep", sleeps)
    caplog.set_level("INFO", logger="trajpilot")
    with stage_lock(str(tmp_path), "features"), pytest.raises(KeyboardInterrupt), stage_lock(str(tmp_path), "features"):
        pytest.fail("two held one stage")
    assert len(caplog.messages) == 1
    assert re.search(f"waiting: process {os.getpid()} on .*, started 20", caplog.text)
    with stage_lock(str(tmp_path), "features"):
        pass


def test_other_stages_of_a_root_do_not_wait(tmp_path: Path) -> None:
    with stage_lock(str(tmp_path), "features"), stage_lock(str(tmp_path), "trajectories"):
        assert sorted(path.name for path in tmp_path.iterdir()) == [".lock-features", ".lock-trajectories"]


def test_without_the_lock_a_pair_would_do_the_work_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the pairs would catch; the bytes are right all the same, as on an object store."""
    monkeypatch.setattr(executing, "stage_lock", lambda *_: nullcontext())
    root, corpus = ready(tmp_path, "root")
    both, computed = threading.Barrier(2, timeout=LIMIT_S), []

    def computing(work: Work) -> None:
        computed.append(len(work.pending))
        both.wait()
        read_vectors_of_takes(work)

    stages = toys_with(VECTOR, run=computing)
    with ThreadPoolExecutor(2) as pair:
        list(pair.map(lambda _: run_toys(options(root, corpus), stages, until="toy_vectors"), range(2)))
    assert computed == [3, 3]
    assert tree_bytes(root) == bytes_of_one_run(tmp_path)


def test_of_two_writers_that_disagree_one_wins_and_both_report_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A computation that is not reproducible to the byte, as on two kinds of GPU, where the stage cannot be locked."""
    monkeypatch.setattr(executing, "stage_lock", lambda *_: nullcontext())
    corpus, meet = write_corpus(tmp_path / "corpus"), threading.Barrier(2)

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
