"""The decoder process: receives jobs and reports events through the pipe in its last argument. See `isolate`.

Jobs: {"kind": "probe", "path"}, {"kind": "clips", "path", "times_s" (S, N), "size_px", and
optionally "backend", "resize", or "augment": arguments of `views.augmented`, which then replaces "resize"}.
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
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import av.logging
import numpy as np
from numpy.typing import NDArray

from trajpilot_core.video.decode import DecodedClip, clips
from trajpilot_core.video.probe import probe
from trajpilot_core.video.pyav_backend import Shape
from trajpilot_core.video.table import VideoError

PR_SET_PDEATHSIG = 1
MEMORY_BYTES = {"pyav": 2 << 30, "decord": 6 << 30}
"""Address space of a decoder; a file that needs more is rejected. decord reads ahead and needs more."""


class ChildEvent(NamedTuple):
    """One event of a job: `clip` (frames), `fault`, `probe`, or one of a further kind of job."""

    kind: str
    values: dict[str, Any]
    frames: NDArray[np.uint8] | None = None


Kinds = Mapping[str, Callable[[dict[str, Any]], Iterator[ChildEvent]]]
"""Kind of job -> the function that yields its events."""


def main(further: Kinds | None = None) -> None:
    """Serve jobs until the pipe closes: `probe`, `clips`, and further kinds."""
    pipe = Connection(int(sys.argv[-1]))
    os.dup2(2, 1)  # output of libraries is not that of the caller
    av.logging.set_level(av.logging.FATAL)  # damage is reported as rejects
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and closes our pipes
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung decoder ends with a killed parent
    kinds: Kinds = {"probe": probe_events, "clips": clip_events, **(further or {})}
    try:
        while True:
            serve(json.loads(pipe.recv_bytes()), pipe, kinds)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return


def serve(job: dict[str, Any], pipe: Connection, kinds: Kinds) -> None:
    """Run one job and send its events, the last of which is `done` or `failed`."""
    memory_bytes = MEMORY_BYTES[job.get("backend", "pyav")]
    if sys.platform == "linux":
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
    try:
        for event in kinds[job["kind"]](job):
            _send(pipe, event, job)
        last = ChildEvent("done", {})
    except VideoError as error:
        last = ChildEvent("failed", {"code": error.code, "detail": str(error)})
    except MemoryError:
        detail = f"{job['path']}: decoding needs more than {memory_bytes >> 30} GiB of memory"
        last = ChildEvent("failed", {"code": "DECODE_FAILED", "detail": detail})
    _send(pipe, last, job)


def probe_events(job: dict[str, Any]) -> Iterator[ChildEvent]:
    """Yield the facts of a video."""
    yield ChildEvent("probe", dataclasses.asdict(probe(job["path"])))


def clip_events(job: dict[str, Any]) -> Iterator[ChildEvent]:
    """Yield every segment of a take as a clip or a fault."""
    times_s = np.asarray(job["times_s"], np.float64)
    how = (shape_of_job(job), job.get("max_off_s"), job.get("backend", "pyav"))
    for segment, clip in clips(job["path"], times_s, job["size_px"], *how):
        if isinstance(clip, DecodedClip):
            yield ChildEvent("clip", {"segment": segment, "pts_s": clip.pts_s.tolist()}, clip.frames)
        else:
            yield fault_event(segment, clip.code, str(clip))


def shape_of_job(job: dict[str, Any]) -> str | Shape:
    """Return how the frames of a job become squares."""
    if "augment" not in job:
        return str(job.get("resize", "swscale"))
    from trajpilot_core.video.views import augmented  # other jobs need neither OpenCV nor Pillow

    return partial(augmented, **job["augment"])


def fault_event(segment: int, code: str, detail: str) -> ChildEvent:
    """Return the event of a segment that cannot be used."""
    return ChildEvent("fault", {"segment": segment, "code": code, "detail": detail})


def _send(pipe: Connection, event: ChildEvent, job: dict[str, Any]) -> None:
    """Send one event; blocks while the parent is busy, which bounds memory.

    A message names the file as in the corpus, not by its path on this machine.
    """
    values = {"kind": event.kind, **event.values}
    if "detail" in values:
        values["detail"] = values["detail"].replace(job["path"], job.get("video", job["path"]))
    if event.frames is not None:
        values["shape"] = event.frames.shape
    pipe.send_bytes(json.dumps(values).encode())
    if event.frames is not None:
        pipe.send_bytes(np.ascontiguousarray(event.frames).reshape(-1).data)


if __name__ == "__main__":
    main()
