"""The decoder process: reads jobs as JSON lines from stdin, reports events on stdout. Started by `isolate`.

Jobs: {"kind": "probe", "path"}, {"kind": "clips", "path", "times_s" (S, N), "size_px", "backend", "resize"}.
With "video", messages use that name instead of the path. For further kinds of jobs a caller has its own entry point,
which calls `main` with them and is named in the `command` of `isolate.run_jobs`.
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
"""Address space of a decoder; a file that needs more is rejected. decord reads ahead and needs more."""


class ChildEvent(NamedTuple):
    """One event of a job of a further kind: `clip` (frames), `fault`, or one of the caller's."""

    kind: str
    values: dict[str, Any]
    frames: NDArray[np.uint8] | None = None


Kinds = Mapping[str, Callable[[dict[str, Any]], Iterator[ChildEvent]]]
"""Kind of job -> the function that yields its events."""


def main(further: Kinds | None = None) -> None:
    """Serve jobs until stdin closes.

    Args:
        further: kinds of jobs in addition to `probe` and `clips`.
    """
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries must not break the protocol
    av.logging.set_level(av.logging.FATAL)  # damage is reported as rejects
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes our pipes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung decoder ends with a killed parent
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
        _send(out, "failed", {"code": error.code, "detail": with_corpus_name(job, str(error))})
    except MemoryError:
        detail = f"{with_corpus_name(job, job['path'])}: decoding needs more than {memory_bytes >> 30} GiB of memory"
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
            _send(out, "fault", {"segment": index, "code": clip.code, "detail": with_corpus_name(job, str(clip))})


def _send_reports(reports: Iterator[ChildEvent], job: dict[str, Any], out: IO[bytes]) -> None:
    """Send the events of a further kind of job; faults use the file's name in the corpus."""
    for report in reports:
        if report.kind == "fault":
            _send(out, "fault", {**report.values, "detail": with_corpus_name(job, report.values["detail"])})
        else:
            _send(out, report.kind, report.values, report.frames)


def with_corpus_name(job: dict[str, Any], detail: str) -> str:
    """Return a message with the file's name in the corpus in place of its path on this machine."""
    return detail.replace(job["path"], job.get("video", job["path"]))


def _send(out: IO[bytes], kind: str, values: dict[str, Any], frames: np.ndarray[Any, Any] | None = None) -> None:
    """Write one event; blocks while the parent is busy, which bounds memory."""
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
