"""The pose files of Aria glasses as a pose source: takes in order of capture."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import JsonValue

from schemas.annotation import Take
from schemas.poses import TrajectoryConfig
from trajpilot_core.poses.sources.base import Done, TakeJob

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


def files(take: Take, cfg: TrajectoryConfig) -> tuple[str, ...]:
    """Return pose file, timesync file and, unless the device frame is configured, calibration."""
    calibration = None if cfg.frame == "device" else take.calibration
    return tuple(path for path in (take.trajectory, take.timesync, calibration) if path is not None)


def facts(take: Take, cfg: TrajectoryConfig) -> Mapping[str, JsonValue]:
    """Return the fields of the take's record that are used."""
    return {"take": take.model_dump(mode="json", include=TAKE_FIELDS)}


def motions(jobs: Sequence[TakeJob], cfg: TrajectoryConfig, runtime: "Runtime") -> Iterator[Done]:
    """Compute takes, those of one capture and camera in a row: their timesync file is read once."""
    from trajpilot_core.poses.sources.take import capture_motions

    ordered = sorted(jobs, key=lambda job: (job[0].timesync or "", job[0].camera, job[0].take_id))
    yield from capture_motions(runtime.data_root, ordered, cfg)
