"""Stage `trajectories`: the head motion of every segment, 16 relative motions from the take's pose file."""

from collections.abc import Iterator
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from typing import TYPE_CHECKING, cast

from pydantic import JsonValue

from schemas.annotation import Take
from schemas.arrow import rows_of
from schemas.base import Record
from schemas.config import TrajectoryConfig
from trajpilot_core.errors import WorkerError
from trajpilot_core.stages.intervals import INTERVAL, covered_s, intervals_by_take
from trajpilot_core.stages.stage import Inputs, Source, Stage, Work
from trajpilot_core.workers import worker_pool

if TYPE_CHECKING:
    from trajpilot_core.trajectory.take import Done

VERSION = 1
TAKE_FIELDS = (
    "trajectory", "timesync", "calibration", "camera",
    "timesync_start", "timesync_end", "n_frames", "fps", "duration_s",
)  # fmt: skip
"""Fields of the take's record that decide the controls."""
MANY = 128
"""From this number of takes on, processes pay for their start."""
GROUP = 16
"""Most takes of one capture that one process handles with one reading of the timesync file."""


def sources(inputs: Inputs, config: Record, data_root: str) -> list[Source]:
    """Return one source per take: its pose, timesync and calibration files, the fields used, the segment intervals."""
    cfg = cast(TrajectoryConfig, config)
    segments = intervals_by_take(inputs.table("segments", INTERVAL))
    takes = sorted(rows_of(Take, inputs.table("takes")), key=lambda take: take.take_id)
    return [_source(take, segments.get(take.take_id, []), cfg) for take in takes]


def _source(take: Take, segments: list[JsonValue], cfg: TrajectoryConfig) -> Source:
    """Return what one take's controls are made from."""
    calibration = take.calibration if cfg.frame == "camera" else None
    files = tuple(path for path in (take.trajectory, take.timesync, calibration) if path is not None)
    fields = take.model_dump(mode="json", include=set(TAKE_FIELDS))
    return Source(shard=take.take_id, files=files, facts={"take": fields, "segments": segments})


def run(work: Work) -> None:
    """Compute the controls of the pending takes and commit one shard for each."""
    takes = {take.take_id: take for take in rows_of(Take, work.inputs.table("takes"))}
    jobs = [(takes[source.shard], source.facts["segments"]) for source in work.pending]
    for done in _outcomes(jobs, work):
        work.sink.shard(done.take_id, done.table, done.rejects, done.n_in)


def _outcomes(jobs: list[tuple[Take, JsonValue]], work: Work) -> "Iterator[Done]":
    """Compute takes capture by capture, in processes where there are many."""
    from trajpilot_core.trajectory.take import capture_controls

    def capture(job: tuple[Take, JsonValue]) -> tuple[str, str, str]:
        return job[0].timesync or "", job[0].camera, job[0].take_id

    groups: list[list[tuple[Take, JsonValue]]] = []
    for _, members in groupby(sorted(jobs, key=capture), key=lambda job: capture(job)[:2]):
        listed = list(members)
        groups += [listed[at : at + GROUP] for at in range(0, len(listed), GROUP)]
    root, cfg = work.runtime.data_root, cast(TrajectoryConfig, work.config)
    if len(jobs) < MANY or work.runtime.workers < 2:
        for group in groups:
            yield from capture_controls(root, group, cfg)
        return
    with worker_pool(work.runtime.workers) as pool:
        try:
            for finished in pool.map(capture_controls, [root] * len(groups), groups, [cfg] * len(groups)):
                yield from finished
        except BrokenProcessPool as error:
            raise WorkerError(
                "a process that reads trajectories ended without a word (killed, or out of memory); run again, with "
                "fewer RunOptions.workers if memory is short: finished takes are kept"
            ) from error


STAGE = Stage(
    name="trajectories",
    reads=("takes", "segments"),
    writes=("controls",),
    config="trajectories",
    run=run,
    version=VERSION,
    summary="resample each segment's head motion to 16 relative 6-DoF motions",
    shard_by="take",
    sources=sources,
    pure_sources=True,
    video_s=covered_s,
)
