"""Trainings side by side: one that dies or fails is told, and what the others finished is kept."""

import multiprocessing
import os
import signal
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from trajpilot_core.engine.stage import Runtime
from trajpilot_core.errors import CheckpointError, TrainingError
from trajpilot_core.training import jobs
from trajpilot_core.training.checkpoint import NAME
from trajpilot_core.training.fit_predictor import FIT as PREDICTOR_FIT
from trajpilot_core.training.jobs import (
    Task,
    Train,
    TrainingJob,
    job_tensors,
    processes,
    put_task,
    run_jobs,
)
from trajpilot_core.training.loop import EpochDone


def jobs_in(folder: Path, n: int) -> list[TrainingJob]:
    return [TrainingJob(f"final/{k}", 0, str(k), folder / str(k), folder, folder, "{}", "cpu") for k in range(n)]


def writes_its_name(job: TrainingJob, epoch_done: EpochDone) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / "done").write_text(job.name)
    epoch_done(3, 3, job.name)


def dies(job: TrainingJob, epoch_done: EpochDone) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fails(job: TrainingJob, epoch_done: EpochDone) -> None:
    raise TrainingError(f"{job.name}: loss nan")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of a pool begin as copies of this one: spawned ones import for seconds."""
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(jobs, "worker_pool", lambda workers: ProcessPoolExecutor(workers, mp_context=fork))


@pytest.mark.usefixtures("forked")
def test_every_job_runs_and_progress_reaches_the_total(tmp_path: Path) -> None:
    for workers in (1, 2):
        told: list[tuple[object, ...]] = []
        folder = tmp_path / str(workers)
        run = Runtime("", "cpu", workers, folder, lambda *given, told=told: told.append(given))
        run_jobs(jobs_in(folder, 2), writes_its_name, run)
        assert [(folder / str(k) / "done").read_text() for k in range(2)] == ["final/0", "final/1"]
        assert told[-1][:2] == (6, 6)


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(("ends", "told"), [(dies, "a training process crashed"), (fails, r"final/[01]: loss nan")])
def test_a_process_that_dies_or_fails_says_why(ends: Train, told: str, tmp_path: Path) -> None:
    assert [processes(3, 1), processes(1, 2), processes(3, 2), processes(4, 2), processes(39, 16)] == [1, 1, 3, 2, 16]
    with pytest.raises(TrainingError, match=told):
        run_jobs(jobs_in(tmp_path, 2), ends, Runtime("", "cpu", 2, tmp_path))


def test_a_checkpoint_that_is_absent_or_damaged_holds_no_result(tmp_path: Path) -> None:
    (job,) = jobs_in(tmp_path, 1)
    with pytest.raises(TrainingError, match="no checkpoint"):
        PREDICTOR_FIT.result(job)
    (job.folder / "trial0").mkdir(parents=True)
    for content in (b"", b"damaged" * 9):
        (job.folder / "trial0" / NAME).write_bytes(content)
        with pytest.raises(CheckpointError, match="is damaged"):
            PREDICTOR_FIT.result(job)


@dataclass(frozen=True)
class Example(Task):
    SHARED: ClassVar[tuple[str, ...]] = ("features", "size")

    features: Tensor
    size: int
    fit: dict[int, Tensor]
    weights: dict[str, Tensor]


def test_a_task_comes_back_as_it_was(tmp_path: Path) -> None:
    windows = {h: torch.arange(2 * h).view(2, h) for h in (10, 3)}
    task = Example(torch.arange(6).view(2, 3).T, 7, windows, {"net.bias": torch.ones(2)})
    put_task(tmp_path, tmp_path, task)
    again = Example.unpacked(job_tensors(jobs_in(tmp_path, 1)[0]))
    assert again.features.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert again.size == 7
    assert list(again.fit) == [10, 3], "in alphabetical order: the order of the batches depends on it"
    assert all(torch.equal(again.fit[h], rows) for h, rows in windows.items())
    assert again.weights["net.bias"].tolist() == [1, 1]
    assert set(task.tensors()[0]) == set(Example.SHARED)
