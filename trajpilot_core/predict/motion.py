"""The head motion of the query's two clips: the best source there is, by the very code of the stage `trajectories`.

In this order: pose files that the query names; those of the take that the video is; those of an Ego-Exo4D download that
the video lies in; none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.annotation import Take
from schemas.config import IngestConfig
from schemas.observation import DOF, MOTIONS
from schemas.predict import Motion, PlanQuery
from trajpilot_core.errors import InputError
from trajpilot_core.predict.clock import given_clock
from trajpilot_core.predict.footage import Footage, local_file
from trajpilot_core.predict.looks import CLIPS
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.readers.corpus import open_corpus
from trajpilot_core.readers.egoexo4d_takes import TAKES, read_takes
from trajpilot_core.trajectory.take import capture_controls

HERE = "/"
"""Data root of paths that are absolute."""
CALIBRATION = "online_calibration.jsonl"
NO_FILE = "no pose file was found"


class Files(NamedTuple):
    """Pose files of one recording, and how they were found."""

    data_root: str
    take: Take
    clock: str
    """How times of poses and video are related, in words."""


@dataclass(frozen=True)
class Moved:
    """The head motion of both clips."""

    controls: NDArray[np.float32]
    """(2, 16, 6), raw."""
    motion: Motion


class Found(NamedTuple):
    """The motion, or why there is none."""

    moved: Moved | None
    notes: tuple[str, ...]


def head_motion(query: PlanQuery, footage: Footage, root: TrainedRoot, scratch: Path) -> Found:
    """Find and resample the head motion of both clips; a source that fails is named, and the next one is asked.

    Args:
        query: names files, or none.
        footage: the video.
        root: whose trajectory settings are used.
        scratch: private folder.

    Raises:
        InputError: pose files that the query names cannot be used.
    """
    if query.poses == "none":
        return Found(None, ("head motion was switched off (poses none)",))
    if query.trajectory is not None:
        moved, why = _read(given_files(query, footage, root, scratch), footage, root)
        if moved is None:
            raise InputError(f"{query.trajectory} cannot be used: {why}")
        return Found(moved, mixed(moved.motion, root))
    failed: list[str] = []
    for files in _found_files(footage, root):
        moved, why = _read(files, footage, root)
        if moved is not None:
            return Found(moved, (*failed, *mixed(moved.motion, root)))
        failed.append(f"{files.take.trajectory or 'the take'}: {why}")
    return Found(None, tuple(failed) or (NO_FILE,))


def mixed(motion: Motion, root: TrainedRoot) -> tuple[str, ...]:
    """Return a warning where the query's motion is not of the kind that the models were trained on; else nothing."""
    columns = ("source", "frame", "scale")
    known = root.inputs.table("controls", columns).group_by(list(columns)).aggregate([]).to_pylist()
    own = {name: getattr(motion, name) for name in columns}
    if known == [own]:
        return ()
    trained = "; ".join(sorted(", ".join(row[name] for name in columns) for row in known))
    return (
        f"MIXED HEAD MOTION: this video's is {', '.join(own.values())}, the models and the bank have {trained}. Axes "
        "and scale differ, so every row but No-Traj may be misled",
    )


def _read(files: Files, footage: Footage, root: TrainedRoot) -> tuple[Moved | None, str]:
    """Resample the motion of both clips; or say why that cannot be done."""
    spans = (footage.start_s, footage.goal_s)
    segments: JsonValue = [[name, *span] for name, span in zip(CLIPS, spans, strict=True)]
    (done,) = capture_controls(files.data_root, [(files.take, segments)], root.trajectories)
    rows: Mapping[str, dict[str, Any]] = {row["segment_id"]: row for row in done.table.to_pylist()}
    if set(rows) != set(CLIPS):
        return None, "; ".join(f"{row.code}: {row.detail}" for row in done.rejects)
    controls = np.array([rows[name]["controls"] for name in CLIPS], np.float32).reshape(-1, MOTIONS, DOF)
    first = rows[CLIPS[0]]
    names = (files.take.trajectory, files.take.timesync, files.take.calibration)
    shown = tuple(name for name in names if name is not None and name != first.get("timesync"))
    return Moved(controls, Motion(
        source=first["source"], frame=first["frame"], scale=first["scale"], files=shown, clock=files.clock,
    )), ""  # fmt: skip


def _found_files(footage: Footage, root: TrainedRoot) -> Iterator[Files]:
    """Yield the files that belong to the video, best first; each is looked for when it is asked for."""
    for look in (partial(_own_files, footage, root), partial(files_beside, footage)):
        files = look()
        if files is not None:
            yield files


def _own_files(footage: Footage, root: TrainedRoot) -> Files | None:
    """Return the files of the take that the video is, where the corpus of the root is still there."""
    if footage.own is None or root.data_root is None:
        return None
    return Files(root.data_root, footage.own, "the take's own timesync file")


def files_beside(footage: Footage) -> Files | None:
    """Return the files of the take of an Ego-Exo4D download that the video lies in; None where it lies in none."""
    for folder in footage.path.parents:
        if not (folder / TAKES).is_file():
            continue
        for take in _takes_of(folder, footage):
            if (folder / take.video).is_file() and (folder / take.video).samefile(footage.path):
                return Files(str(folder), take, f"the timesync file of {folder}")
    return None


def _takes_of(folder: Path, footage: Footage) -> Iterator[Take]:
    """Yield the usable takes of a download, once for each released video, with the clock of the video that is asked."""
    corpus = open_corpus(str(folder))
    for config in (IngestConfig(video="full"), IngestConfig(video="downscaled_448")):
        for found in read_takes(corpus, config).usable.values():
            names = (name for name in found.__dataclass_fields__ if name in Take.model_fields)
            known = {name: getattr(found, name) for name in names}
            probe = footage.probe
            counted = {"duration_s": probe.duration_s, "fps": probe.fps, "n_frames": probe.n_frames}
            yield Take.model_validate({**known, **counted, "split": "test"})


def given_files(query: PlanQuery, footage: Footage, root: TrainedRoot, scratch: Path) -> Files:
    """Return the files that a query names, with a clock for them.

    Raises:
        InputError: a file is not there, or the clock cannot be made.
    """
    assert query.trajectory is not None
    poses = local_file(query.trajectory, "trajectory")
    calibration = local_file(query.calibration, "calibration") if query.calibration else poses.parent / CALIBRATION
    if root.trajectories.frame == "camera" and not calibration.is_file():
        raise InputError(
            f"the models were trained on motion in the frame of the camera, so the calibration is needed beside "
            f"{poses.name}; name {CALIBRATION} with --calibration"
        )
    clock = given_clock(query, poses, footage.probe, scratch)
    take = Take(
        take_id="query", corpus="query", name=footage.path.stem, split="test", scenario="", participant=None,
        capture="query", video=str(footage.path), trajectory=str(poses), timesync=str(clock.path),
        calibration=str(calibration), camera=clock.camera, timesync_start=clock.first, timesync_end=clock.end,
        duration_s=footage.probe.duration_s, fps=footage.probe.fps, n_frames=footage.probe.n_frames,
    )  # fmt: skip
    return Files(HERE, take, clock.told)
