"""What a stage took is noted and scaled; a lack of disk is refused before it begins, one of memory names settings."""

import logging
import os
import shutil
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from toy_stages import INGEST, SUM, TOYS, VECTOR, run_toys, toys_with

from schemas.config import EvaluationConfig, PipelineConfig, RunOptions
from trajpilot_core.engine import needs
from trajpilot_core.engine.execution.execute import compute_shards, execute
from trajpilot_core.engine.execution.outcome import anonymous_bytes, release_heap, scratch_bytes, watched
from trajpilot_core.engine.execution.reuse import scratch_folder
from trajpilot_core.engine.needs import expected, free_memory, last_note
from trajpilot_core.engine.stage import Stage
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.files import Folder, open_folder

CONFIG, MB, GB = PipelineConfig(), 10**6, 10**9
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def folder(run: RunOptions) -> Folder:
    return open_folder(run.root)


@on_linux
def test_what_a_stage_took_is_noted_and_scaled_by_rows(run: RunOptions, folder: Folder) -> None:
    run_toys(run)
    noted = last_note(folder, "toy_vectors")[1]
    assert (noted.rows, noted.computed, noted.gpu_bytes) == (4, 4, 0)
    assert noted.memory_bytes > 20 * MB
    whole = sum(path.stat().st_size for path in Path(run.root).glob("artifacts/toy_vectors/shards/*/data-*"))
    assert whole <= noted.disk_bytes < whole + 10_000
    half = expected(folder, VECTOR, rows=8, units=2)  # takes read their own rows: half of them are half the work
    assert (half.seconds, half.disk) == (noted.seconds / 2, noted.disk_bytes // 2)
    assert half.memory == 2 * noted.memory_bytes, "twice the rows are read, whatever is computed"
    total = last_note(folder, "toy_sum")[1]
    assert expected(folder, SUM, rows=3 * total.rows).disk == 3 * total.disk_bytes
    assert expected(folder, SUM, rows=1).memory == total.memory_bytes, "never less"


def test_a_disk_without_room_for_what_a_stage_took_is_refused_before_it_begins(
    run: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=100)
    monkeypatch.setattr("trajpilot_core.store.lock.shutil.disk_usage", lambda path: usage)
    assert expected(open_folder(run.root), INGEST) is None, "nothing is known of a first run, and it is not stopped"
    run_toys(run)
    assert run_toys(run)["toy_sum"].cached, "what is there needs nothing"

    for stage in (SUM, VECTOR):
        stages = toys_with(stage, run=lambda work: pytest.fail("it began"), lowers=("a.b", "c.d"))
        refused = f"stage {stage.name}, by its last run, needs 0.00 GB under {run.root}.* or lower a.b or c.d"
        with pytest.raises(StoreError, match=refused):
            run_toys(run.replace(force=(stage.name,)), stages)
    other = PipelineConfig(evaluation=EvaluationConfig(seed=3))
    assert run_toys(run, config=other)["toy_sum"].computed == 1, "a note of other settings refuses nothing"
    left = scratch_folder(run, "toy_sum-0123")
    left.mkdir(parents=True)
    (left / "checkpoint").write_bytes(bytes(MB))
    assert scratch_bytes(run, "toy_sum") >= MB
    assert run_toys(run.replace(force=("toy_sum",)))["toy_sum"].computed == 1, "what is left there is needed no more"


def test_a_scratch_that_cannot_be_read_does_not_end_the_watch(run: RunOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "glob", Mock(side_effect=PermissionError(13, "Permission denied")))
    assert scratch_bytes(run, "toy_sum") == 0


def test_memory_that_a_stage_took_and_that_is_not_free_is_warned_of(
    run: RunOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run_toys(run)
    monkeypatch.setattr(logging.getLogger("trajpilot"), "propagate", True)
    monkeypatch.setattr(needs, "free_memory", lambda: 0)
    monkeypatch.setattr(needs, "anonymous_bytes", lambda process: 0)
    run_toys(run.replace(force=("toy_sum",)), toys_with(SUM, lowers=("scorer.candidates",)))
    assert "memory in its last run, but 0 MB is free; if it runs out, lower scorer.candidates, --workers" in caplog.text


def test_shards_that_other_processes_made_leave_the_memory_unknown(run: RunOptions, folder: Folder) -> None:
    run_toys(run, until="toy_ingest")

    def elsewhere(work, job, pending):
        compute_shards(work, job, pending[:1])
        return pending[1:]

    execute(VECTOR, CONFIG, run, TOYS, elsewhere=elsewhere)
    noted = last_note(folder, "toy_vectors")[1]
    assert (noted.computed, noted.memory_bytes) == (4, None)


def holding() -> subprocess.Popen[bytes]:
    """A process that has 80 MB."""
    code = "import sys; held = bytearray(b'1') * 80_000_000; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child


@on_linux
def test_memory_of_child_processes_and_scratch_are_seen_and_older_processes_are_not(run: RunOptions) -> None:
    older, own = holding(), anonymous_bytes(os.getpid())
    with watched(run, "toy", "cpu") as alone:
        time.sleep(0.5)
    with watched(run, "toy", "cpu") as peaks:
        child, scratch = holding(), scratch_folder(run, "toy-x")
        scratch.mkdir(parents=True)
        (scratch / "queries").write_bytes(bytes(MB))
        time.sleep(0.5)
        child.communicate()
        shutil.rmtree(scratch)
    older.communicate()
    assert alone.memory < own + 60 * MB
    assert peaks.memory > alone.memory + 70 * MB
    assert MB <= peaks.scratch < 2 * MB


@on_linux
def test_heaps_that_earlier_stages_left_are_given_back_before_the_memory_is_looked_at() -> None:
    """Every other small block is freed: the heap keeps its pages until it is trimmed, which happens in whole pages."""
    many = [bytearray(64_000) for _ in range(2_000)]
    kept = many[::10]
    del many
    before = anonymous_bytes(os.getpid())
    release_heap()
    assert anonymous_bytes(os.getpid()) < before - 40 * MB
    assert len(kept) == 200


def test_a_container_that_may_use_less_than_the_machine_has_less(tmp_path: Path) -> None:
    listing, none = tmp_path / "meminfo", tmp_path / "none"
    listing.write_text("MemTotal: 64000000 kB\nMemAvailable:   50000000 kB\n")
    assert free_memory(listing, tmp_path) == 50_000_000 * 1024
    (tmp_path / "memory.max").write_text("8000000000\n")
    assert free_memory(listing, tmp_path) == 8 * GB
    (tmp_path / "memory.stat").write_text("anon 3000000000\nfile 4000000000\n")
    assert free_memory(listing, tmp_path) == 5 * GB
    (tmp_path / "memory.max").write_text("max\n")
    assert free_memory(listing, tmp_path) == 50_000_000 * 1024
    assert free_memory(none, tmp_path) is None


@pytest.mark.parametrize("stage", [INGEST, VECTOR])
def test_memory_that_runs_out_names_the_setting(run: RunOptions, stage: Stage) -> None:
    message = rf"stage {stage.name} ran out of memory \(.*\); lower scorer\.candidates, --w"
    full = [Mock(side_effect=error("80 GB")) for error in (MemoryError, torch.OutOfMemoryError)]
    for fault in (*full, lambda work: torch.empty(2**50)):
        with pytest.raises(InputError, match=message):
            run_toys(run, toys_with(stage, run=fault, lowers=("scorer.candidates",)))
    with pytest.raises(RuntimeError, match="wrong shapes"):
        run_toys(run, toys_with(stage, run=Mock(side_effect=RuntimeError("wrong shapes"))))


def test_every_setting_that_a_stage_names_exists() -> None:
    assert [stage.name for stage in EVERY_STAGE.values() if not stage.lowers] == ["vlm_rows"]
    for name in (name for stage in EVERY_STAGE.values() for name in stage.lowers):
        attrgetter(name)(CONFIG)
