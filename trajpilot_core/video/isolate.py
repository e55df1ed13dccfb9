"""A pool of decoder processes: a decoder that crashes or hangs costs one job, never the run.

A child is a bare interpreter (`python -m trajpilot_core.video.child DESCRIPTOR`) that imports neither torch nor the
caller's main module. Its pipe carries jobs and events as JSON, and after the event of a clip the raw bytes of its
frames. A full pipe blocks its decoder, so memory is bounded: `ahead` clips and two per child.
"""

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from schemas.rejects import RejectCode

if TYPE_CHECKING:
    from trajpilot_core.store.corpus_files import Corpus

COMMAND = (sys.executable, "-P", "-m", "trajpilot_core.video.child")
CHECK_S = 0.2
"""How often a waiting thread checks whether it should end, and a waiting caller whether a thread failed, seconds."""
END_S = 5.0
"""How long a decoder may take to end after its pipe was closed."""
DecodeJob = dict[str, Any]
Around = Callable[[DecodeJob], AbstractContextManager[DecodeJob]]


@dataclass(frozen=True)
class Event:
    """An event of a job.

    Kinds: `clip` (a segment's frames), `fault` (a segment cannot be decoded), `probe`, and at the end of every job
    `done` or `failed` (the whole job is lost).
    """

    job: int
    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    frames: NDArray[np.uint8] | None = None
    """(N, size, size, 3) RGB of a clip."""

    @property
    def is_last(self) -> bool:
        """Whether its job ended with it."""
        return self.kind in ("done", "failed")


def run_jobs(
    jobs: Sequence[DecodeJob],
    *,
    workers: int,
    timeout_s: float,
    ahead: int,
    around: Around = nullcontext,
    command: Sequence[str] = COMMAND,
) -> Iterator[Event]:
    """Run JSON jobs in child processes and yield their events; events of one job are in order, jobs interleave.

    Args:
        jobs: jobs of `trajpilot_core.video.child`, or further kinds of `command`.
        workers: children, each with one job at a time.
        timeout_s: a child without an event for longer is killed; its job fails and the child is replaced.
        ahead: most events that wait for the caller.
        around: context manager that yields the job as the child gets it (with a local copy of a remote file).

    Every job ends with exactly one event `done` or `failed`.
    """
    pool = _Pool(jobs, timeout_s, around, command, queue.Queue(maxsize=max(1, ahead)))
    threads = [threading.Thread(target=pool.work, daemon=True) for _ in range(max(1, min(workers, len(jobs))))]
    for thread in threads:
        thread.start()
    try:
        ended = 0
        while ended < len(jobs):
            try:
                event = pool.events.get(timeout=CHECK_S)
            except queue.Empty:
                for error in pool.errors:
                    raise error  # noqa: B904
                continue
            ended += event.is_last
            yield event
    finally:
        pool.stopping.set()
        while any(thread.is_alive() for thread in threads):
            try:
                pool.events.get(timeout=0.05)  # a thread may wait for room
            except queue.Empty:
                continue


@dataclass
class _Pool:
    """What the threads of a call share; each thread has one decoder at a time."""

    jobs: Sequence[DecodeJob]
    timeout_s: float
    around: Around
    command: Sequence[str]
    events: "queue.Queue[Event]"
    stopping: threading.Event = field(default_factory=threading.Event)
    errors: list[BaseException] = field(default_factory=list)
    """Errors of threads, which are no decoder's."""

    def __post_init__(self) -> None:
        self.todo = iter(range(len(self.jobs)))

    def work(self) -> None:
        """Give jobs to a decoder until there are none."""
        decoder: _Decoder | None = None
        try:
            for index in self.todo:  # `next` of a range is atomic
                if self.stopping.is_set():
                    break
                with self.around(self.jobs[index]) as job:
                    decoder = decoder or _Decoder(self.command)
                    for event in self._report(decoder, index, job):
                        self.events.put(event)
                decoder = None if decoder.process.returncode is not None else decoder
        except OSError as error:
            self.errors.append(error)
        except BaseException as error:
            self.errors.append(error)
            raise
        finally:
            if decoder is not None:
                decoder.end()

    def _report(self, decoder: "_Decoder", index: int, job: DecodeJob) -> Iterator[Event]:
        """Send a job and yield its events; a decoder that dies or is silent has ended after `failed`."""
        try:
            decoder.pipe.send_bytes(json.dumps(job).encode())
            while True:
                event = decoder.event(index, self)
                yield event
                if event.is_last:
                    return
        except (EOFError, OSError) as error:
            is_hung = isinstance(error, TimeoutError)
            code = decoder.end(kill=is_hung)
            how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit status {code}"
            fault = f"the decoder process died with {how}"
            if is_hung:
                fault = f"the decoder was silent for {self.timeout_s:g} s and was killed (signal {-code})"
            detail = f"{self.jobs[index].get('video', self.jobs[index].get('path'))}: {fault}"
            yield Event(index, "failed", {"code": RejectCode.DECODE_FAILED, "detail": detail})


class _Decoder:
    """A decoder process and our end of its pipe."""

    def __init__(self, command: Sequence[str]) -> None:
        ours, theirs = Pipe()
        with theirs:
            end = theirs.fileno()
            self.process = subprocess.Popen([*command, str(end)], stdin=subprocess.DEVNULL, pass_fds=[end])
        self.pipe: Connection = ours

    def event(self, index: int, pool: _Pool) -> Event:
        """Receive an event. Raises TimeoutError: it is silent, or the pool stops; EOFError or OSError: it is dead."""
        deadline_s = time.monotonic() + pool.timeout_s
        while not self.pipe.poll(CHECK_S):
            if pool.stopping.is_set() or time.monotonic() > deadline_s:
                raise TimeoutError
        values = json.loads(self.pipe.recv_bytes())
        kind, shape, frames = values.pop("kind"), values.pop("shape", None), None
        if shape is not None:
            frames = np.empty(shape, np.uint8)
            self.pipe.recv_bytes_into(frames.reshape(-1).data)
        return Event(index, kind, values, frames)

    def end(self, *, kill: bool = False) -> int:
        """Close the pipe, which ends a healthy process, and return its exit status."""
        if kill:
            self.process.kill()
        self.pipe.close()
        try:
            return self.process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def local_copies(corpus: "Corpus", scratch: Path) -> Around:
    """Return a context manager that yields a decoder's job with a local video (a copy where the corpus is remote)."""

    @contextmanager
    def local(job: DecodeJob) -> Iterator[DecodeJob]:
        if corpus.is_local:
            yield {**job, "path": corpus.path(job["path"])}
            return
        copy = scratch / "videos" / job["path"].replace("/", "_")
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            try:
                corpus.fs.get_file(corpus.path(job["path"]), str(copy))
            except FileNotFoundError:
                copy.unlink(missing_ok=True)
            yield {**job, "path": str(copy)}
        finally:
            copy.unlink(missing_ok=True)

    return local
