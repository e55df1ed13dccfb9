"""Pose files of the video of a query, and the relation of their times to those of the video.

Project Aria writes poses on the device clock. A timesync file contains the device time of every frame; without one, the
query must give the second of the video at which the first pose was taken.
"""

import csv
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
RGB = "214-1"
"""Stream of the RGB camera in the names of Project Aria."""
OUR_CAMERA = "query"
NS_PER_S = 1_000_000_000


class PoseFiles(NamedTuple):
    """Pose files of one recording."""

    data_root: str
    take: Take
    clock: str
    """Relation of the times of poses and video, in words."""


class QueryClock(NamedTuple):
    """A timesync file and its rows that are the video."""

    path: Path
    camera: str
    first: int
    end: int
    relation: str
    """Relation of the times, in words."""


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
    """Return the files that a query names; others are those of the take that the video is, where it is one.

    Raises:
        InputError: a file does not exist or is not a pose file, or the relation of the times is unknown.
    """
    poses = local_file(query.trajectory or "", "trajectory")
    try:
        stamps_us = closed_loop.parse(read_bytes(HERE, str(poses), RejectCode.TRAJ_MALFORMED), str(poses)).stamp_us
    except (TakeFault, OSError) as error:
        raise InputError(f"trajectory {poses} is not a closed-loop pose file of Project Aria: {error}") from error
    if not len(stamps_us):
        raise InputError(f"trajectory {poses} has no rows; give a complete file")
    clocks = ((files, _clock_of(files)) for files in found_files(footage, root))
    known, known_clock = next((pair for pair in clocks if pair[1] is not None), (None, None))
    calibration = poses.parent / CALIBRATION
    if query.calibration:
        calibration = local_file(query.calibration, "calibration")
    elif not calibration.is_file() and known is not None and known.take.calibration is not None:
        calibration = Path(known.data_root, known.take.calibration).absolute()
    if root.trajectories.frame == "camera" and not calibration.is_file():
        raise InputError(
            f"the models were trained on motion in the frame of the camera, so the calibration is needed next to "
            f"{poses.name}; name {CALIBRATION} with --calibration"
        )
    if query.timesync is not None:
        clock = named_clock(query, footage, known_clock)
    elif query.trajectory_offset_s is not None:
        offset_s, step_ns, n_frames = query.trajectory_offset_s, NS_PER_S / footage.probe.fps, footage.probe.n_frames
        begin_ns = int(stamps_us[0]) * 1000 - round(offset_s * NS_PER_S)
        times_ns = (str(begin_ns + round(k * step_ns)) for k in range(n_frames + 1))  # frames are evenly spaced
        path, relation = scratch / "timesync.csv", f"the first pose was taken at {offset_s:g} s of the video"
        path.write_text("\n".join([device.capture_column(OUR_CAMERA), *times_ns]) + "\n", encoding="utf-8")
        clock = QueryClock(path, OUR_CAMERA, 0, n_frames, relation)
    elif known_clock is not None:
        clock = known_clock
    else:
        raise InputError(
            f"the times in {poses.name} cannot be related to the video, which is not a take of the models' corpus or "
            "of an Ego-Exo4D download with its timesync; give --timesync timesync.csv, or with --trajectory-offset the "
            "second of the video at which the first pose was taken (0: with the first frame)"
        )
    take = query_take(
        footage,
        video=str(footage.path),
        trajectory=str(poses),
        timesync=str(clock.path),
        calibration=str(calibration),
        camera=clock.camera,
        timesync_start=clock.first,
        timesync_end=clock.end,
    )
    return PoseFiles(HERE, take, clock.relation)


def _clock_of(files: PoseFiles) -> QueryClock | None:
    """Return the clock of files whose timesync file is on this machine and whose rows in it are known; else None."""
    take = files.take
    if take.timesync is None or take.timesync_start is None or take.timesync_end is None or "://" in files.data_root:
        return None
    path = Path(files.data_root, take.timesync).absolute()
    return (
        QueryClock(path, take.camera, take.timesync_start, take.timesync_end, files.clock) if path.is_file() else None
    )


def named_clock(query: PlanQuery, footage: Footage, known: QueryClock | None) -> QueryClock:
    """Return the clock of a query that names a timesync file; `known`: that of the take which the video is.

    Raises:
        InputError: the file cannot be used, its camera or its rows for the video are unknown, or settings contradict
            each other.
    """
    if query.trajectory_offset_s is not None:
        raise InputError("--timesync and --trajectory-offset exclude each other: the timesync file contains the times")
    path = local_file(query.timesync or "", "timesync")
    if known is not None and query.timesync_start is None and query.camera is None and path.samefile(known.path):
        return known
    camera = query.camera
    if camera is None:
        try:
            with path.open(encoding="utf-8", errors="replace") as stream:
                names = next(csv.reader(stream), [])
        except csv.Error as error:
            raise InputError(f"timesync {path} is not a CSV file: {error}; give the file as it was released") from error
        suffix = device.capture_column("")
        cameras = [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
        chosen = [name for name in cameras if name.endswith(RGB)] or cameras
        if len(chosen) != 1:
            listed = ", ".join(cameras[:8]) or f"no column ...{suffix}"
            raise InputError(f"timesync {path} has {len(chosen)} RGB cameras ({listed}); name one with --camera")
        (camera,) = chosen
    try:
        rows = len(device.read_column(HERE, str(path), camera))
    except TakeFault as fault:
        raise InputError(f"timesync {path} cannot be used: {fault.detail}") from fault
    frames, first = footage.probe.n_frames, query.timesync_start
    if first is None and frames not in (rows, rows - 1):
        raise InputError(
            f"{path.name} has {rows:,} rows and the video {frames:,} frames; give the row of the video's first "
            "frame with --timesync-start (Ego-Exo4D's takes.json: timesync_start_idx)"
        )
    first = first or 0
    return QueryClock(path, camera, first, first + frames, f"{path.name}, camera {camera}, from row {first} on")


def query_take(footage: Footage, **files: object) -> Take:
    """Return the video of a query as a take of no corpus; fields of Take that are not in `files` are None."""
    unknown = dict.fromkeys(("participant", "trajectory", "timesync", "calibration", "timesync_start", "timesync_end"))
    named = {"take_id": "query", "corpus": "query", "name": footage.path.stem, "split": "test", "capture": "query"}
    return Take.model_validate({**unknown, **named, "scenario": "", "camera": "", **measured(footage), **files})


def measured(footage: Footage) -> dict[str, float]:
    """Return the fields of a take that are measured on its video."""
    probe = footage.probe
    return {"duration_s": probe.duration_s, "fps": probe.fps, "n_frames": probe.n_frames}
