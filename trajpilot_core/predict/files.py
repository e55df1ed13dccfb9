"""Which pose files belong to the video of a query: those that it names, of the take that it is, or next to it."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from schemas.annotation import Take
from schemas.config import IngestConfig
from schemas.predict import PlanQuery
from trajpilot_core.corpora.egoexo4d.takes import TAKES, read_takes
from trajpilot_core.errors import InputError
from trajpilot_core.predict.clock import QueryClock, first_stamp_us, given_clock
from trajpilot_core.predict.footage import Footage, local_file
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.store.corpus_files import open_corpus

HERE = "/"
"""Data root of paths that are absolute."""
CALIBRATION = "online_calibration.jsonl"


class PoseFiles(NamedTuple):
    """Pose files of one recording, and how they were found."""

    data_root: str
    take: Take
    clock: str
    """How times of poses and video are related, in words."""


def found_files(footage: Footage, root: TrainedRoot) -> Iterator[PoseFiles]:
    """Yield the files that belong to the video, best first; each is looked for when it is asked for."""
    for find in (partial(_own_files, footage, root), partial(files_beside, footage)):
        files = find()
        if files is not None:
            yield files


def _own_files(footage: Footage, root: TrainedRoot) -> PoseFiles | None:
    """Return the files of the take that the video is, where the corpus of the root is still there."""
    if footage.own is None or root.data_root is None:
        return None
    return PoseFiles(root.data_root, footage.own, "the take's own timesync file")


def files_beside(footage: Footage) -> PoseFiles | None:
    """Return the files of the take of an Ego-Exo4D download that the video lies in; None where it lies in none."""
    for folder in footage.path.parents:
        if not (folder / TAKES).is_file():
            continue
        for take in _takes_of(folder, footage):
            if (folder / take.video).is_file() and (folder / take.video).samefile(footage.path):
                return PoseFiles(str(folder), take, f"the timesync file of {folder}")
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


def given_files(query: PlanQuery, footage: Footage, root: TrainedRoot, scratch: Path) -> PoseFiles:
    """Return the files that a query names; what it does not name is that of the take which the video is known to be.

    Raises:
        InputError: a file is not there or no pose file, or it is unknown how the times are related.
    """
    assert query.trajectory is not None
    poses = local_file(query.trajectory, "trajectory")
    first_stamp_us(poses)
    known = _known_files(footage, root)
    calibration = _calibration(query, poses, known)
    if root.trajectories.frame == "camera" and not calibration.is_file():
        raise InputError(
            f"the models were trained on motion in the frame of the camera, so the calibration is needed next to "
            f"{poses.name}; name {CALIBRATION} with --calibration"
        )
    clock = given_clock(query, poses, footage.probe, None if known is None else _clock(known), scratch)
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


def _known_files(footage: Footage, root: TrainedRoot) -> PoseFiles | None:
    """Return the files of the take that the video is known to be, where its timesync file lies on this machine."""
    for files in found_files(footage, root):
        take, is_local = files.take, "://" not in files.data_root
        has_rows = None not in (take.timesync_start, take.timesync_end)
        if is_local and has_rows and take.timesync is not None and Path(files.data_root, take.timesync).is_file():
            return files
    return None


def _clock(known: PoseFiles) -> QueryClock:
    """Return the clock of files that `_known_files` found."""
    take = known.take
    assert take.timesync is not None
    assert take.timesync_start is not None
    assert take.timesync_end is not None
    path = Path(known.data_root, take.timesync).absolute()
    return QueryClock(path, take.camera, take.timesync_start, take.timesync_end, known.clock)


def _calibration(query: PlanQuery, poses: Path, known: PoseFiles | None) -> Path:
    """Return the calibration that the query names, that next to its poses, or that of the known take.

    Raises:
        InputError: the one that the query names is not there.
    """
    if query.calibration:
        return local_file(query.calibration, "calibration")
    beside = poses.parent / CALIBRATION
    if beside.is_file() or known is None or known.take.calibration is None:
        return beside
    return Path(known.data_root, known.take.calibration).absolute()


def bare_take(footage: Footage, root: TrainedRoot) -> Take:
    """Return the video as a take for sources that read it: its path, its clock, and the calibration that is known."""
    known = next(found_files(footage, root), None)
    calibration = None
    if known is not None and known.take.calibration is not None:
        path = Path(known.data_root, known.take.calibration)
        calibration = str(path) if path.is_file() else None
    return query_take(footage, video=str(footage.path).lstrip("/"), calibration=calibration)


def query_take(footage: Footage, **files: object) -> Take:
    """Return the video of a query as a take of no corpus; of its `files` (fields of Take) what is not given is none."""
    probe = footage.probe
    facts = {"duration_s": probe.duration_s, "fps": probe.fps, "n_frames": probe.n_frames}
    unknown = dict.fromkeys(("participant", "trajectory", "timesync", "calibration", "timesync_start", "timesync_end"))
    named = {"take_id": "query", "corpus": "query", "name": footage.path.stem, "split": "test", "capture": "query"}
    return Take.model_validate({**unknown, **named, "scenario": "", "camera": "", **facts, **files})
