"""The pose files of Aria glasses as a pose source: takes grouped by capture, in processes if there are many."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby
from typing import TYPE_CHECKING

from pydantic import JsonValue

from schemas.annotation import Take
from schemas.poses import TrajectoryConfig
from trajpilot_core.errors import WorkerError
from trajpilot_core.poses.sources.base import Done, TakeJob
from trajpilot_core.runtime import worker_pool

if TYPE_CHECKING:
    from trajpilot_core.engine.stage import Runtime

TAKE_FIELDS = {
    "trajectory",
    "timesync",
    "calibration",
    "camera",
    "timesync_start",
    "timesync_end",
    "n_frames",
    "fps",
    "duration_s",
}
"""Fields of the take's record that decide the motions."""
MANY = 128
"""Number of takes from which on processes are worth their start."""
GROUP = 16
"""Most takes of one capture per process and reading of the timesync file."""


def files(take: Take, cfg: TrajectoryConfig) -> tuple[str, ...]:
    """Return pose file, timesync file and, unless the device frame is configured, calibration."""
    calibration = None if cfg.frame == "device" else take.calibration
    return tuple(path for path in (take.trajectory, take.timesync, calibration) if path is not None)


def facts(take: Take, cfg: TrajectoryConfig) -> Mapping[str, JsonValue]:
    """Return the fields of the take's record that are used."""
    return {"take": take.model_dump(mode="json", include=TAKE_FIELDS)}


def motions(jobs: Sequence[TakeJob], cfg: TrajectoryConfig, runtime: "Runtime") -> Iterator[Done]:
    """Compute takes, those of one capture and camera together, at most GROUP. Raises WorkerError: a process crashed."""
    from trajpilot_core.poses.sources.take import capture_motions

    def capture(job: TakeJob) -> tuple[str, str, str]:
        return job[0].timesync or "", job[0].camera, job[0].take_id

    root, groups = runtime.data_root, list[list[TakeJob]]()
    for _, members in groupby(sorted(jobs, key=capture), key=lambda job: capture(job)[:2]):
        listed = list(members)
        groups += [listed[at : at + GROUP] for at in range(0, len(listed), GROUP)]
    if len(jobs) < MANY or runtime.workers < 2:
        for group in groups:
            yield from capture_motions(root, group, cfg)
        return
    with worker_pool(runtime.workers) as pool:
        try:
            for finished in pool.map(capture_motions, [root] * len(groups), groups, [cfg] * len(groups)):
                yield from finished
        except BrokenProcessPool as error:
            raise WorkerError(
                "a process that reads trajectories crashed (killed, or out of memory); run again, "
                "with fewer --workers if memory is short; finished takes are kept"
            ) from error
