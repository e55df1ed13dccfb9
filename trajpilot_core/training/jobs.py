"""Several trainings side by side: spawned processes on a CPU, one after the other on a GPU; the results are the same.

A training takes everything from files in scratch and leaves everything in its checkpoint, so that a crash of one
process or of all of them costs at most the epochs since the last checkpoint, and no tensor is pickled.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from schemas.results import CurvePoint
from trajpilot_core.data.cross_fitting import Chain, model_key, note_fitted
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.runtime import worker_pool
from trajpilot_core.store.files import naming_failures
from trajpilot_core.training.checkpoint import (
    NAME,
    TrainingProgress,
    checkpoint_epoch,
    is_there,
    read_progress,
    read_tensors,
    write_atomically,
)
from trajpilot_core.training.loop import EpochDone, tell_resumed

POLL_S = 0.5
UNIT = "epochs at most"
"""A training may stop early."""
QUOTED = 2
"""Trainings that progress quotes."""
SHARED, OWN, EPOCHS = "shared.safetensors", "task.safetensors", "epochs.json"


class TrainingJob(NamedTuple):
    """One training, described by words and files only."""

    name: str
    """`<chain>/<variant>`."""
    seed: int
    variant: str
    folder: Path
    """Private; holds the checkpoint."""
    own: Path
    """Folder with the task's tensors; jobs of one chain and seed share it."""
    shared: Path
    """Folder with the tensors that all the jobs share."""
    config: str
    """The stage's configuration as JSON."""
    device: str
    checkpoint_s: float = 0.0
    """Seconds between checkpoints; 0: one after every epoch."""

    @property
    def key(self) -> str:
        """Key of its model."""
        return model_key(Chain(self.name.split("/")[0], None), self.seed, self.variant)


def chain_job(
    work: Work[Any], chain: Chain, seed: int, variant: str, own: Path, shared: Path, name: str | None = None
) -> TrainingJob:
    """Return the training of one shard of a stage, whose tensors lie in scratch.

    Args:
        work: of the stage; its settings go to the training.
        chain: cross-fit chain.
        seed: of weights, dropout and batches.
        variant: what is trained.
        own: folder with the task's tensors.
        shared: folder with the tensors that all the jobs share.
        name: what the variant is called in the log and the curves; None: as it is.
    """
    return TrainingJob(
        name=f"{chain.name}/{name or variant}",
        seed=seed,
        variant=variant,
        folder=work.runtime.training_scratch[model_key(chain, seed, variant)],
        own=own,
        shared=shared,
        config=work.config.model_dump_json(),
        device=work.runtime.device,
        checkpoint_s=work.runtime.checkpoint_s,
    )


Train = Callable[[TrainingJob, EpochDone], None]
"""Must be a module-level function: a spawned process finds it by name."""


def no_news(job: TrainingJob) -> None:
    """Ignore that a job has ended."""


def run_jobs(
    jobs: Sequence[TrainingJob], train: Train, runtime: Runtime, ended: Callable[[TrainingJob], None] = no_news
) -> None:
    """Run every job to its end; one that has ended before is over at once.

    Args:
        jobs: the trainings.
        train: fits one.
        runtime: where they run.
        ended: called in this process for each job as soon as it has ended; its folder may be gone afterwards.

    Raises:
        TrainingError: a training failed, or its process died.
    """
    workers = min(runtime.workers, len(jobs)) if runtime.device == "cpu" else 1
    if workers > 1:
        _run_spawned(jobs, train, runtime, workers, ended)
        return
    for number, job in enumerate(jobs):

        def report(epoch: int, epochs: int, line: str, number: int = number) -> None:
            runtime.progress(number * epochs + epoch, len(jobs) * epochs, f"{UNIT}; {line}")

        train(job, report)
        ended(job)


def run_trials(
    job: TrainingJob, n_trials: int, train: Callable[[int, Path, EpochDone], None], epoch_done: EpochDone
) -> None:
    """Fit the trials of a job one after the other, each in a folder of its own; progress counts the epochs of all."""
    for number in range(n_trials):

        def report(epoch: int, epochs: int, line: str, number: int = number) -> None:
            epoch_done(number * epochs + epoch, n_trials * epochs, line)

        train(number, job.folder / f"trial{number}", report)


class BestTrial(NamedTuple):
    """What a training of several trials leaves."""

    number: int
    """Of the trial that dev chose."""
    weights: dict[str, Tensor]
    """Of its best epoch, on the CPU."""
    curve: list[CurvePoint]
    """Of all trials; that of the chosen one has the name of the training, those of the others name their trial."""


def best_trial(job: TrainingJob, n_trials: int) -> BestTrial:
    """Return the trial with the highest dev score, ties to the first.

    Raises:
        TrainingError: one has not ended.
    """
    found: list[TrainingProgress] = []
    for number in range(n_trials):
        folder = job.folder / f"trial{number}"
        if not folder.is_dir():
            raise TrainingError(f"{job.name} seed {job.seed} left no checkpoint in {folder}; run the stage again")
        found.append(read_progress(folder))
    best = max(range(n_trials), key=lambda number: (found[number].best_score, -number))
    curve = [point.replace(model=job.name) for point in found[best].curve]
    curve += [point for number, one in enumerate(found) if number != best for point in one.curve]
    return BestTrial(best, found[best].best, curve)


def named_windows(fit: Mapping[int, Tensor], dev: Mapping[int, Tensor]) -> dict[str, Tensor]:
    """Return windows (N, H) by horizon, long, as the tensors `fit/<H>` and `dev/<H>`."""
    return {f"{part}/{h}": rows for part, of_part in (("fit", fit), ("dev", dev)) for h, rows in of_part.items()}


def windows_of(tensors: Mapping[str, Tensor], part: str) -> dict[int, Tensor]:
    """Return horizon -> windows (N, H), long, of `fit` or `dev`, as `named_windows` was given them."""
    named = sorted(name for name in tensors if name.startswith(f"{part}/"))
    return {int(name.removeprefix(f"{part}/")): tensors[name] for name in named}


def put_tensors(folder: Path, name: str, tensors: Mapping[str, Tensor]) -> None:
    """Write the inputs of trainings, so that a process can read them."""
    write_atomically(folder / name, {key: value.cpu().contiguous() for key, value in tensors.items()}, {})


def put_task(shared: Path, own: Path, tensors: tuple[Mapping[str, Tensor], Mapping[str, Tensor]]) -> None:
    """Write the inputs of the trainings of one task: what all jobs share, and what is the task's own."""
    put_tensors(shared, SHARED, tensors[0])
    put_tensors(own, OWN, tensors[1])


def job_tensors(job: TrainingJob) -> dict[str, Tensor]:
    """Read the inputs of a job onto its device: name -> tensor of the shape that `put_tensors` was given."""
    return read_tensors(job.shared / SHARED, job.device)[0] | read_tensors(job.own / OWN, job.device)[0]


def job_result(job: TrainingJob) -> tuple[dict[str, Tensor], list[CurvePoint]]:
    """Return the best weights and the curve of a job that has ended.

    Returns:
        Name of a parameter or buffer -> CPU tensor of its shape, and the curve.

    Raises:
        TrainingError: it has not.
    """
    if not is_there(job.folder / NAME):
        raise TrainingError(f"{job.name} seed {job.seed} left no checkpoint in {job.folder}; run the stage again")
    progress: TrainingProgress = read_progress(job.folder)
    return progress.best, progress.curve


def fitted_takes(job: TrainingJob, segment_take: Tensor, take_ids: Sequence[str]) -> dict[str, str]:
    """Return on the segments of which takes a training was fitted, as what is said of its models.

    Read from the tensors that the job was given (`fit`, `fit_rows` and `fit/<H>` hold numbers of segments), not from
    the folds that those should follow, so that a leak shows.

    Args:
        job: a training whose inputs still lie in scratch.
        segment_take: shape (S,), long, the take of each segment.
        take_ids: ids of the takes.
    """
    tensors = read_tensors(job.own / OWN, "cpu", lambda name: name.split("/")[0] in ("fit", "fit_rows"))[0]
    takes = torch.unique(segment_take.cpu()[torch.cat([rows.flatten() for rows in tensors.values()])]).tolist()
    return note_fitted(job.name.split("/")[0], [take_ids[take] for take in takes])


def _run_spawned(
    jobs: Sequence[TrainingJob], train: Train, runtime: Runtime, workers: int, ended: Callable[[TrainingJob], None]
) -> None:
    """Run the jobs in processes of their own, and report how far they are; what a process logs itself is not seen."""
    for job in jobs:
        tell_resumed(job.name, job.seed, checkpoint_epoch(job.folder))
    with worker_pool(workers) as pool:
        futures = [pool.submit(_in_process, job, train) for job in jobs]
        try:
            _watch(futures, jobs, runtime, ended)
        except BrokenProcessPool as error:
            raise TrainingError(
                "a training process crashed (killed, or out of memory); run again, with fewer "
                "--workers if memory is short: each training goes on from its last checkpoint"
            ) from error


def _watch(
    futures: Sequence[Future[None]],
    jobs: Sequence[TrainingJob],
    runtime: Runtime,
    ended: Callable[[TrainingJob], None],
) -> None:
    """Wait for all and hand over each that has ended; raise the first error at once."""
    open_ = dict(zip(futures, jobs, strict=True))
    known: dict[TrainingJob, tuple[int, int, str]] = {}
    while open_:
        done, _ = wait(open_, POLL_S, FIRST_COMPLETED)
        known |= {job: _progress_of(job) for job in open_.values()}
        for future in done:
            future.result()
            ended(open_.pop(future))
        runtime.progress(*_together([known[job] for job in jobs], [future.done() for future in futures]))


def _together(progress: Sequence[tuple[int, int, str]], ended: Sequence[bool]) -> tuple[int, int, str]:
    """Add up the epochs of all trainings, one that ended early as if it had gone on, and quote those at work."""
    each = max(epochs for _, epochs, _ in progress)
    if not each:
        return 0, len(progress), "trainings; none has ended its first epoch"
    done = sum(each if over else epoch for (epoch, _, _), over in zip(progress, ended, strict=True))
    lines = [line for (_, _, line), over in zip(progress, ended, strict=True) if line and not over]
    return done, len(progress) * each, "; ".join([UNIT, *lines[:QUOTED]])


def _in_process(job: TrainingJob, train: Train) -> None:
    """Train in this process; how far it is goes to a small file that the parent reads."""

    def tell(epoch: int, epochs: int, line: str) -> None:
        temporary = job.folder / f".{EPOCHS}"
        with naming_failures("write", job.folder / EPOCHS):
            job.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps([epoch, epochs, line]), encoding="utf-8")
            temporary.replace(job.folder / EPOCHS)

    train(job, tell)


def _progress_of(job: TrainingJob) -> tuple[int, int, str]:
    """Epochs done, most epochs, one line; zeros before the first epoch has ended."""
    path = job.folder / EPOCHS
    with naming_failures("read", path):
        if not path.is_file():
            return 0, 0, ""
        epoch, epochs, line = json.loads(path.read_text(encoding="utf-8"))
    return int(epoch), int(epochs), str(line)
