"""A pool of decoder processes: a decoder that crashes or hangs costs one job, never the run.

A child is a bare interpreter (`python -m trajpilot_core.video.child`) that imports neither torch nor the caller's main
module. It reads jobs as JSON lines and writes events as length-prefixed JSON, followed by the raw bytes of the frames,
if any. A full pipe blocks its decoder, so memory is bounded: `ahead` clips and two per child.
"""

import json
import logging
import queue
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from schemas.rejects import RejectCode

if TYPE_CHECKING:
    from trajpilot_core.store.corpus_files import Corpus

log = logging.getLogger("trajpilot")
SIZE_BYTES = 4
"""Every event begins with the length of its JSON, little endian."""
COMMAND = (sys.executable, "-P", "-m", "trajpilot_core.video.child")
CHECK_S = 0.5
"""How often a waiting caller checks whether a worker failed, seconds."""
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
        command: starts a child.

    Every job ends with exactly one event `done` or `failed`.
    """
    inbox: queue.SimpleQueue[int | None] = queue.SimpleQueue()
    outbox: queue.Queue[Event] = queue.Queue(maxsize=max(1, ahead))
    n_workers = max(1, min(workers, len(jobs)))
    for index in [*range(len(jobs)), *[None] * n_workers]:
        inbox.put(index)
    pool = [_Worker(jobs, inbox, outbox, timeout_s, around, command) for _ in range(n_workers)]
    for worker in pool:
        worker.start()
    try:
        ended = 0
        while ended < len(jobs):
            try:
                event = outbox.get(timeout=CHECK_S)
            except queue.Empty:
                for error in (worker.error for worker in pool if worker.error is not None):
                    raise error  # noqa: B904
                continue
            ended += event.kind in ("done", "failed")
            yield event
    finally:
        for worker in pool:
            worker.stop(outbox)


class _Worker(threading.Thread):
    """Feeds one child at a time and reads what it reports."""

    def __init__(
        self,
        jobs: Sequence[DecodeJob],
        inbox: "queue.SimpleQueue[int | None]",
        outbox: "queue.Queue[Event]",
        timeout_s: float,
        around: Around,
        command: Sequence[str],
    ) -> None:
        super().__init__(name="trajpilot-decode", daemon=True)
        self._jobs, self._inbox, self._outbox = jobs, inbox, outbox
        self._timeout_s, self._around, self._command = timeout_s, around, command
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Run jobs until there are none; an error outside of the decoder is kept for the caller."""
        try:
            while (index := self._inbox.get()) is not None and not self._stopping.is_set():
                with self._around(self._jobs[index]) as job:
                    for event in self._report(index, job):
                        self._outbox.put(event)
        except OSError as error:
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._end_child()

    def stop(self, outbox: "queue.Queue[Event]") -> None:
        """End the child and the thread; waiting events are discarded."""
        self._stopping.set()
        self._inbox.put(None)
        child = self._child
        if child is not None and self.is_alive():
            child.kill()
        while self.is_alive():
            try:
                outbox.get_nowait()
            except queue.Empty:
                self.join(timeout=0.05)

    def _report(self, index: int, job: DecodeJob) -> Iterator[Event]:
        """Send one job to the child and yield its events."""
        child = self._child
        if child is None or child.poll() is not None:
            self._end_child()
            child = subprocess.Popen(list(self._command), bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self._child = child
            if self._stopping.is_set():
                child.kill()
        try:
            _pipe(child.stdin).write(json.dumps(job).encode() + b"\n")
            while True:
                event = self._read(child, index)
                yield event
                if event.kind in ("done", "failed"):
                    return
        except (EOFError, BrokenPipeError, TimeoutError) as error:
            hung = isinstance(error, TimeoutError)
            if hung:
                child.kill()
            code = child.wait()
            self._end_child()
            how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit status {code}"
            fault = f"the decoder process died with {how}"
            if hung:
                fault = f"the decoder was silent for {self._timeout_s:g} s and was killed (signal {-code})"
            detail = f"{self._jobs[index].get('video', self._jobs[index].get('path'))}: {fault}"
            yield Event(index, "failed", {"code": RejectCode.DECODE_FAILED, "detail": detail})

    def _read(self, child: "subprocess.Popen[bytes]", index: int) -> Event:
        """Read one event. Raises TimeoutError: the child is silent; EOFError: it is dead."""
        out = _pipe(child.stdout)
        size = bytearray(SIZE_BYTES)
        self._fill(out, memoryview(size))
        header = bytearray(int.from_bytes(size, "little"))
        self._fill(out, memoryview(header))
        values = json.loads(header)
        kind, shape, frames = values.pop("kind"), values.pop("shape", None), None
        if shape is not None:
            frames = np.empty(shape, np.uint8)
            self._fill(out, frames.data.cast("B"))
        return Event(index, kind, values, frames)

    def _fill(self, out: IO[bytes], rest: memoryview) -> None:
        """Read until `rest` is full; the pipe is unbuffered, so that poll sees all waiting bytes."""
        waiting = select.poll()
        waiting.register(out, select.POLLIN)
        while rest:
            if not waiting.poll(self._timeout_s * 1000):
                raise TimeoutError
            n_read = out.readinto(rest)  # type: ignore[attr-defined]
            if not n_read:
                raise EOFError
            rest = rest[n_read:]

    def _end_child(self) -> None:
        """Close the pipes, which ends a healthy child, and wait for it."""
        child, self._child = self._child, None
        if child is None:
            return
        for pipe in (child.stdin, child.stdout):
            try:
                _pipe(pipe).close()
            except BrokenPipeError:
                log.debug("the decoder process had closed its pipe")
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    """Return a pipe of Popen, which is never None here."""
    assert pipe is not None
    return pipe


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
