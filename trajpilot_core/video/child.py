"""The decoder process: reads jobs as JSON lines from stdin, reports events on stdout. Started by `isolate`.

Jobs: {"kind": "probe", "path"}, {"kind": "clips", "path", "times_s" (S, N), "size_px", "backend", "resize"}.
With "video", messages name the file so, and not by where it lies. A caller with further kinds of jobs has an entry
point of its own, which calls `main` with them, and names it in the `command` of `isolate.run_jobs`.
"""

import ctypes
import dataclasses
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any, NamedTuple

import av.logging
import numpy as np
from numpy.typing import NDArray

from trajpilot_core.video.decode import DecodedClip, clips
from trajpilot_core.video.isolate import SIZE_BYTES
from trajpilot_core.video.probe import probe
from trajpilot_core.video.table import VideoError

PR_SET_PDEATHSIG = 1
MEMORY_BYTES = {"pyav": 2 << 30, "decord": 6 << 30}
"""Address space of a decoder; a file that wants more is rejected. decord runs ahead and needs more."""


class ChildEvent(NamedTuple):
    """One event of a job of a further kind: `clip` (frames), `fault`, or one that the caller knows."""

    kind: str
    values: dict[str, Any]
    frames: NDArray[np.uint8] | None = None


Kinds = Mapping[str, Callable[[dict[str, Any]], Iterator[ChildEvent]]]
"""Kind of job -> what reports on it."""


def main(further: Kinds | None = None) -> None:
    """Serve jobs until stdin closes.

    Args:
        further: kinds of jobs in addition to `probe` and `clips`.
    """
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # libraries that print must not break the protocol
    av.logging.set_level(av.logging.FATAL)  # damage is reported as rejects
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's; it closes our pipes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung decoder does not outlive a killed parent
    try:
        for line in sys.stdin.buffer:
            serve(json.loads(line), out, further or {})
    except BrokenPipeError:
        return


def serve(job: dict[str, Any], out: IO[bytes], further: Kinds) -> None:
    """Do one job and report its events, the last of which is `done` or `failed`."""
    memory_bytes = MEMORY_BYTES[job.get("backend", "pyav")]
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        if job["kind"] == "probe":
            _send(out, "probe", dataclasses.asdict(probe(job["path"])))
        elif job["kind"] == "clips":
            _send_clips(job, out)
        else:
            _send_reports(further[job["kind"]](job), job, out)
    except VideoError as error:
        _send(out, "failed", {"code": error.code, "detail": in_corpus_words(job, str(error))})
    except MemoryError:
        detail = f"{in_corpus_words(job, job['path'])}: decoding needs more than {memory_bytes >> 30} GiB of memory"
        _send(out, "failed", {"code": "DECODE_FAILED", "detail": detail})
    else:
        _send(out, "done", {})


def _send_clips(job: dict[str, Any], out: IO[bytes]) -> None:
    """Report every segment of a take as a clip or a fault."""
    times_s = np.asarray(job["times_s"], np.float64)
    how = (job["backend"], job.get("resize", "swscale"), job.get("max_off_s"))
    for index, clip in clips(job["path"], times_s, job["size_px"], *how):
        if isinstance(clip, DecodedClip):
            _send(out, "clip", {"segment": index, "pts_s": clip.pts_s.tolist()}, clip.frames)
        else:
            _send(out, "fault", {"segment": index, "code": clip.code, "detail": in_corpus_words(job, str(clip))})


def _send_reports(reports: Iterator[ChildEvent], job: dict[str, Any], out: IO[bytes]) -> None:
    """Pass on what a further kind of job reports; a fault names the file as the job does."""
    for report in reports:
        if report.kind == "fault":
            _send(out, "fault", {**report.values, "detail": in_corpus_words(job, report.values["detail"])})
        else:
            _send(out, report.kind, report.values, report.frames)


def in_corpus_words(job: dict[str, Any], detail: str) -> str:
    """Return a message with the file's name in the corpus in place of its path on this machine."""
    return detail.replace(job["path"], job.get("video", job["path"]))


def _send(out: IO[bytes], kind: str, values: dict[str, Any], frames: np.ndarray[Any, Any] | None = None) -> None:
    """Write one event; blocks while the parent is busy, which is what bounds memory."""
    if frames is not None:
        values = {**values, "shape": frames.shape}
    header = json.dumps({"kind": kind, **values}).encode()
    parts: list[bytes | memoryview] = [len(header).to_bytes(SIZE_BYTES, "little") + header]
    if frames is not None:
        parts.append(np.ascontiguousarray(frames).data.cast("B"))
    for part in parts:
        rest = memoryview(part)
        while rest:
            rest = rest[out.write(rest) :]


if __name__ == "__main__":
    main()
