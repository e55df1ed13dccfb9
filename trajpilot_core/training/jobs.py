"""Several trainings side by side: spawned processes on a CPU, one after the other on a GPU; the results are the same.

A training reads all of its inputs from scratch files and writes all of its results to its checkpoint. A crash of one or
all processes costs at most the epochs since the last checkpoint, and no tensor is pickled.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, get_origin

import torch
from torch import Tensor

from schemas.base import Record
from schemas.results import CurvePoint
from trajpilot_core.data.cross_fitting import Chain, model_key, note_fitted
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.runtime import worker_pool
from trajpilot_core.store.files import naming_failures
from trajpilot_core.training.checkpoint import NAME, is_there, read_progress, read_tensors, write_atomically
from trajpilot_core.training.loop import EpochDone, Training, fit

TaskT = TypeVar("TaskT", bound="Task")
ConfigT = TypeVar("ConfigT", bound=Record)
POLL_S = 0.5
UNIT = "epochs at most"
"""A training may stop early."""
QUOTED = 2
"""Trainings whose progress line is shown."""
SHARED, OWN, EPOCHS = "shared.safetensors", "task.safetensors", "epochs.json"


class TrainingJob(NamedTuple):
    """One training, described by strings, numbers and paths only."""

    name: str
    """`<chain>/<variant>`."""
    seed: int
    variant: str
    folder: Path
    """Private folder of the checkpoint."""
    own: Path
    """Folder with the task's tensors; jobs of one chain and seed share it."""
    shared: Path
    """Folder with the tensors that all jobs share."""
    config: str
    """The stage's configuration as JSON."""
    device: str
    checkpoint_s: float = 0.0
    """Seconds between checkpoints; 0: one after every epoch."""
    trial: int = 0
    """Trial of a grid that is being trained; `Fit` sets it, a new job has 0."""

    @property
    def key(self) -> str:
        """Key of its model."""
        return model_key(Chain(self.name.split("/")[0], None), self.seed, self.variant)


def chain_job(work: Work[Any], chain: Chain, seed: int, variant: str, folder: Path, shared: Path) -> TrainingJob:
    """Return the training of one shard of a stage, whose tensors are in `folder`, and those of all jobs in `shared`."""
    return TrainingJob(
        name=f"{chain.name}/{variant}",
        seed=seed,
        variant=variant,
        folder=work.runtime.training_scratch[model_key(chain, seed, variant)],
        own=folder,
        shared=shared,
        config=work.config.model_dump_json(),
        device=work.runtime.device,
        checkpoint_s=work.runtime.checkpoint_s,
    )


@dataclass(frozen=True)
class Task:
    """The data of a training: a subclass declares its tensors, numbers, and mappings of tensors as fields."""

    SHARED: ClassVar[tuple[str, ...]] = ()
    """Fields that are equal for all jobs of a stage."""

    def tensors(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the fields as tensors by name: those that all jobs share, and the others.

        The items of a mapping are named `<field>/<key>`; the shapes are those of the fields.
        """
        shared, of_training = dict[str, Tensor](), dict[str, Tensor]()
        for name, value in vars(self).items():
            packed = shared if name in self.SHARED else of_training
            if isinstance(value, Mapping):
                packed |= {f"{name}/{key}": item for key, item in value.items()}
            else:
                packed[name] = torch.as_tensor(value)
        return shared, of_training

    @classmethod
    def unpacked(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Build a task from the tensors that `tensors` returned; keys of mappings are in alphabetical order."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            if get_origin(field.type) is dict:
                named = sorted(name for name in tensors if name.startswith(f"{field.name}/"))
                items = {name.split("/", 1)[1]: tensors[name] for name in named}
                values[field.name] = {int(key) if key.isdigit() else key: item for key, item in items.items()}
            else:
                value = tensors[field.name]
                values[field.name] = int(value) if field.type is int else value
        return cls(**values)


def put_task(shared: Path, own: Path, task: Task, *, is_first: bool = True) -> None:
    """Write a task for its jobs: what differs into `own`; into `shared`, with the first task, what all jobs share."""
    of_all, of_task = task.tensors()
    for path, tensors in ((shared / SHARED, of_all), (own / OWN, of_task))[0 if is_first else 1 :]:
        write_atomically(path, {key: value.cpu().contiguous() for key, value in tensors.items()}, {})


def job_tensors(job: TrainingJob) -> dict[str, Tensor]:
    """Read the inputs of a job onto its device: name -> tensor of the shape that `put_task` wrote."""
    return read_tensors(job.shared / SHARED, job.device)[0] | read_tensors(job.own / OWN, job.device)[0]


def _no_grid(config: Record) -> int:
    return 1


class JobResult(NamedTuple):
    """The result of a job."""

    trial: int
    """Number of the trial with the highest dev score, ties to the first."""
    weights: dict[str, Tensor]
    """Parameters and buffers of its best epoch, on the CPU."""
    curve: list[CurvePoint]
    """Curves of all trials: the chosen one has the name of the job, the others are named after their trial."""


@dataclass(frozen=True)
class Fit(Generic[TaskT, ConfigT]):
    """How one kind of model is trained; a call trains a job. Spawned processes import its functions by name."""

    task: type[TaskT]
    config: type[ConfigT]
    training: Callable[[TrainingJob, TaskT, ConfigT], Training]
    """(job, its data on its device, settings of the stage) -> the training of a new model."""
    n_trials: Callable[[ConfigT], int] = _no_grid
    """Trials of a grid, of which dev chooses one."""

    def __call__(self, job: TrainingJob, epoch_done: EpochDone) -> None:
        """Train the trials one after the other; each has its own checkpoint, and progress counts the epochs of all."""
        config, task = self.config.model_validate_json(job.config), self.task.unpacked(job_tensors(job))
        n_trials = self.n_trials(config)
        for number in range(n_trials):

            def report(epoch: int, epochs: int, line: str, number: int = number) -> None:
                epoch_done(number * epochs + epoch, n_trials * epochs, line)

            training = self.training(job._replace(trial=number), task, config)
            fit(training, job.folder / f"trial{number}", job.device, report, job.checkpoint_s)

    def result(self, job: TrainingJob) -> JobResult:
        """Return the result of a completed job.

        Raises TrainingError: a trial is not complete.
        """
        n_trials = self.n_trials(self.config.model_validate_json(job.config))
        folders = [job.folder / f"trial{number}" for number in range(n_trials)]
        for folder in folders:
            if not is_there(folder / NAME):
                raise TrainingError(f"{job.name} seed {job.seed} left no checkpoint in {folder}; run the stage again")
        trials = [read_progress(folder) for folder in folders]
        best = max(range(n_trials), key=lambda number: (trials[number].best_score, -number))
        curve = [point.replace(model=job.name) for point in trials[best].curve]
        curve += [point for number, trial in enumerate(trials) if number != best for point in trial.curve]
        return JobResult(best, trials[best].best, curve)


Train = Callable[[TrainingJob, EpochDone], None]
"""Trains a job: a `Fit`, or a function of a module."""


def run_jobs(
    jobs: Sequence[TrainingJob], train: Train, runtime: Runtime, ended: Callable[[TrainingJob], None] = lambda job: None
) -> None:
    """Run every job to completion; one that completed earlier returns at once.

    For each completed job `ended` is called in this process; it may delete the job's folder.

    Raises TrainingError: a training failed, or its process crashed.
    """
    workers = processes(len(jobs), runtime.workers) if runtime.device == "cpu" else 1
    if workers > 1:
        _run_spawned(jobs, train, runtime, workers, ended)
        return
    for number, job in enumerate(jobs):

        def report(epoch: int, epochs: int, line: str, number: int = number) -> None:
            runtime.progress(number * epochs + epoch, len(jobs) * epochs, f"{UNIT}; {line}")

        train(job, report)
        ended(job)


def processes(n_jobs: int, workers: int) -> int:
    """Return how many processes train: all trainings at once where a second round would leave cores idle."""
    return n_jobs if workers > 1 and n_jobs < 2 * workers else min(n_jobs, workers)


def fitted_takes(job: TrainingJob, segment_take: Tensor, take_ids: Sequence[str]) -> dict[str, str]:
    """Return the note in an entry of models that lists the takes on whose segments a training was fitted.

    The takes follow from the tensors of the job (`fit`, `fit_rows` and `fit/<H>` are indices of segments) and the take
    of each segment (S,), long, not from the folds that should have produced them, so that a leak is visible.
    """
    tensors = read_tensors(job.own / OWN, "cpu", lambda name: name.split("/")[0] in ("fit", "fit_rows"))[0]
    takes = torch.unique(segment_take.cpu()[torch.cat([rows.flatten() for rows in tensors.values()])]).tolist()
    return note_fitted(job.name.split("/")[0], [take_ids[take] for take in takes])


def _run_spawned(
    jobs: Sequence[TrainingJob], train: Train, runtime: Runtime, workers: int, ended: Callable[[TrainingJob], None]
) -> None:
    """Run the jobs in separate processes, report their progress, and raise the first error at once.

    The log of a process itself is not shown.
    """
    with worker_pool(workers) as pool:
        futures = [pool.submit(_in_process, job, train) for job in jobs]
        open_ = dict(zip(futures, jobs, strict=True))
        known: dict[TrainingJob, tuple[int, int, str]] = {}
        try:
            while open_:
                done, _ = wait(open_, POLL_S, FIRST_COMPLETED)
                known |= {job: _progress_of(job) for job in open_.values()}
                for future in done:
                    future.result()
                    ended(open_.pop(future))
                runtime.progress(*_together([known[job] for job in jobs], [future.done() for future in futures]))
        except BrokenProcessPool as error:
            raise TrainingError(
                "a training process crashed (killed, or out of memory); run again, with fewer "
                "--workers if memory is short: each training goes on from its last checkpoint"
            ) from error


def _together(progress: Sequence[tuple[int, int, str]], ended: Sequence[bool]) -> tuple[int, int, str]:
    """Add up the epochs of all trainings (early stopping counts as all epochs) and show lines of running ones."""
    each = max(epochs for _, epochs, _ in progress)
    if not each:
        return 0, len(progress), "trainings; none has completed an epoch yet"
    done = sum(each if over else epoch for (epoch, _, _), over in zip(progress, ended, strict=True))
    lines = [line for (_, _, line), over in zip(progress, ended, strict=True) if line and not over]
    return done, len(progress) * each, "; ".join([UNIT, *lines[:QUOTED]])


def _in_process(job: TrainingJob, train: Train) -> None:
    """Train in this process; the parent reads the progress from a small file."""

    def report(epoch: int, epochs: int, line: str) -> None:
        temporary = job.folder / f".{EPOCHS}"
        with naming_failures("write", job.folder / EPOCHS):
            job.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps([epoch, epochs, line]), encoding="utf-8")
            temporary.replace(job.folder / EPOCHS)

    train(job, report)


def _progress_of(job: TrainingJob) -> tuple[int, int, str]:
    """Return epochs done, most epochs, and a line; zeros before the first epoch is complete."""
    path = job.folder / EPOCHS
    with naming_failures("read", path):
        if not path.is_file():
            return 0, 0, ""
        epoch, epochs, line = json.loads(path.read_text(encoding="utf-8"))
    return int(epoch), int(epochs), str(line)
