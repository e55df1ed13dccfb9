"""Pose files of the video of a query, and the relation of their times to those of the video.

Project Aria writes poses on the device clock. The timesync file of a take contains the device time of every frame; for
other videos the query must give the second of the video at which the first pose was taken.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from schemas.annotation import Take
from schemas.config import IngestConfig
from schemas.predict import PlanQuery
from schemas.rejects import RejectCode
from trajpilot_core.corpora.egoexo4d.takes import TAKES, read_takes
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.poses.aria import closed_loop, device
from trajpilot_core.poses.files import read_bytes
from trajpilot_core.predict.footage import Footage, local_file
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.store.corpus_files import open_corpus

HERE = "/"
"""Data root of paths that are absolute."""
CALIBRATION = "online_calibration.jsonl"
CAMERA = "query"
NS_PER_S = 1_000_000_000


class PoseFiles(NamedTuple):
    """Pose files of one recording."""

    data_root: str
    take: Take
    clock: str
    """Relation of the times of poses and video, in words."""


def found_files(footage: Footage, root: TrainedRoot) -> Iterator[PoseFiles]:
    """Yield the files of the take that the video is, then those of the Ego-Exo4D download that contains it."""
    if footage.own is not None and root.data_root is not None:
        yield PoseFiles(root.data_root, footage.own, "the take's own timesync file")
    for folder in footage.path.parents:
        if not (folder / TAKES).is_file():
            continue
        corpus = open_corpus(str(folder))
        for config in (IngestConfig(video="full"), IngestConfig(video="downscaled_448")):
            for listed in read_takes(corpus, config).usable.values():
                if (folder / listed.video).is_file() and (folder / listed.video).samefile(footage.path):
                    known = {name: getattr(listed, name) for name in Take.model_fields if hasattr(listed, name)}
                    take = Take.model_validate({**known, **measured(footage), "split": "test"})
                    yield PoseFiles(str(folder), take, f"the timesync file of {folder}")
                    return


def given_files(query: PlanQuery, footage: Footage, root: TrainedRoot, scratch: Path) -> PoseFiles:
    """Return the pose file that a query names, with a timesync file of evenly spaced frames.

    Raises InputError: a file does not exist or is not a pose file, or the relation of the times is unknown.
    """
    poses = local_file(query.trajectory or "", "trajectory")
    try:
        stamps_us = closed_loop.parse(read_bytes(HERE, str(poses), RejectCode.TRAJ_MALFORMED), str(poses)).stamp_us
    except (TakeFault, OSError) as error:
        raise InputError(f"trajectory {poses} is not a closed-loop pose file of Project Aria: {error}") from error
    if not len(stamps_us):
        raise InputError(f"trajectory {poses} has no rows; give a complete file")
    if query.trajectory_offset_s is None:
        raise InputError(
            f"the times in {poses.name} cannot be related to the video; give with --trajectory-offset the second of "
            "the video at which the first pose was taken (0: with the first frame), or leave --trajectory out for a "
            "take of the models' corpus or of an Ego-Exo4D download: its files are found"
        )
    calibration = local_file(query.calibration, "calibration") if query.calibration else poses.parent / CALIBRATION
    if root.trajectories.frame == "camera" and not calibration.is_file():
        raise InputError(
            f"the models were trained on motion in the frame of the camera, so the calibration is needed next to "
            f"{poses.name}; name {CALIBRATION} with --calibration"
        )
    offset_s, step_ns, n_frames = query.trajectory_offset_s, NS_PER_S / footage.probe.fps, footage.probe.n_frames
    begin_ns = int(stamps_us[0]) * 1000 - round(offset_s * NS_PER_S)
    times_ns = (str(begin_ns + round(k * step_ns)) for k in range(n_frames + 1))
    timesync = scratch / "timesync.csv"
    timesync.write_text("\n".join([device.capture_column(CAMERA), *times_ns]) + "\n", encoding="utf-8")
    take = query_take(
        footage,
        video=str(footage.path),
        trajectory=str(poses),
        timesync=str(timesync),
        calibration=str(calibration),
        camera=CAMERA,
        timesync_start=0,
        timesync_end=n_frames,
    )
    return PoseFiles(HERE, take, f"the first pose was taken at {offset_s:g} s of the video")


def query_take(footage: Footage, **files: object) -> Take:
    """Return the video of a query as a take of no corpus; fields of Take that are not in `files` are None."""
    unknown = dict.fromkeys(("participant", "trajectory", "timesync", "calibration", "timesync_start", "timesync_end"))
    named = {"take_id": "query", "corpus": "query", "name": footage.path.stem, "split": "test", "capture": "query"}
    return Take.model_validate({**unknown, **named, "scenario": "", "camera": "", **measured(footage), **files})


def measured(footage: Footage) -> dict[str, float]:
    """Return the fields of a take that are measured on its video."""
    probe = footage.probe
    return {"duration_s": probe.duration_s, "fps": probe.fps, "n_frames": probe.n_frames}
