"""EgoPER -> one candidate take per trimmed video, its steps joined over the tasks by name; the rest becomes rejects.

Decisions: docs/decisions/segment-corpora.md. The unit that is counted is the segment, background included.
"""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.annotation import SIMULATED, CorpusCount, Details
from schemas.config import IngestConfig
from schemas.corpora import EgoPerConfig
from schemas.rejects import RejectCode
from trajpilot_core.readers.candidates import OVERLAPS, Gathered
from trajpilot_core.readers.corpus import Corpus
from trajpilot_core.readers.egoper_files import (
    NORMAL,
    EgoPerFile,
    EgoPerSegment,
    EgoPerVideo,
    parse_annotation,
    parse_split,
    participant_of,
)
from trajpilot_core.readers.fields import shown
from trajpilot_core.readers.folders import Folders, leftover_rejects, needed, read_document
from trajpilot_core.readers.labels import normalise
from trajpilot_core.readers.reading import (
    Fault,
    Listing,
    Point,
    Published,
    Reader,
    Reading,
    Released,
    TakeFiles,
    span_point,
)
from trajpilot_core.readers.simulated import WORLD_FILE, is_simulated

CORPUS = "egoper"
ANNOTATION = "annotation.json"
ADVICE = "ask its authors for the data by e-mail (docs/data.md)"
OFFICIAL = {"train": "training.txt", "val": "validation.txt", "test": "test.txt"}
LISTED = {"train": "splits/train.txt", "val": "splits/val.txt", "test": "splits/test.txt"}


class _Splits(NamedTuple):
    used: dict[str, Released]
    """Video id -> how it is used."""
    faults: dict[str, Fault]
    """Video ids in more than one list."""
    unused: frozenset[str]
    """Video ids in a list that is not used."""
    files: tuple[str, ...]
    """Lists that were looked for."""


def take_id(video_id: str) -> str:
    """Return the take's id in our tables."""
    return f"{CORPUS}:{shown(video_id)}"


def task_folder(folders: Folders, task: str) -> str:
    """Return the folder of a task: annotations name it in lower case, some downloads begin it with a capital."""
    names = (task, task.capitalize(), task.upper())
    holds = (name for name in names for inner in ("trim_videos", "") if folders.names(f"{name}/{inner}".rstrip("/")))
    return next(holds, task)


def split_files(folders: Folders, tasks: Sequence[str], config: EgoPerConfig) -> dict[str, list[str]]:
    """Return released split -> its lists of video ids: one a task, or one in all."""
    if config.splits == "listed":
        return {split: [path] for split, path in LISTED.items()}
    return {split: [f"{task_folder(folders, task)}/{name}" for task in tasks] for split, name in OFFICIAL.items()}


def _splits(folders: Folders, tasks: Sequence[str], config: IngestConfig) -> _Splits:
    """Read the lists of video ids; every list counts, so that a video in two of them is noticed.

    Raises:
        InputError: none of the lists that are used is there, or one cannot be read.
    """
    of: dict[str, set[str]] = {}
    files = split_files(folders, tasks, config.egoper)
    asked = [path for split in ("train", config.test_split) for path in files[split]]
    needed(folders, asked, f"{ADVICE}, or set ingest.egoper.splits")
    for split, paths in files.items():
        for path in paths:
            if folders.is_there(path):
                for video_id in parse_split(read_document(folders.corpus, path), path):
                    of.setdefault(video_id, set()).add(split)
    roles: dict[str, Released] = {"train": "train", config.test_split: "test"}
    used = {
        v: roles[split] for v, (split, *more) in ((v, sorted(s)) for v, s in of.items()) if not more and split in roles
    }
    faults = {
        v: Fault(RejectCode.NO_SPLIT, f"it is in the lists of {', '.join(sorted(splits))}")
        for v, splits in of.items() if len(splits) > 1
    }  # fmt: skip
    return _Splits(used, faults, frozenset(of) - set(used) - set(faults), tuple(asked))


def read_egoper(corpus: Corpus, config: IngestConfig) -> Reading:
    """Read annotation.json and the lists of the splits.

    Raises:
        InputError: annotation.json or all lists are absent or cannot be read.
    """
    folders, gathered = Folders(corpus), Gathered()
    document, splits = _documents(folders, config)
    simulated = is_simulated(folders.corpus)
    known = {video.video_id for video in document.videos}
    for video_id, n_units, fault in document.lost:
        gathered.reject(fault, take_id(video_id) if video_id else "", n_units, ANNOTATION)
        known.add(video_id)
    for video_id in sorted({*splits.used, *splits.faults} - known):
        fault = Fault(RejectCode.TAKE_UNKNOWN, f"a list names it, {ANNOTATION} does not")
        gathered.reject(fault, take_id(video_id), 0, ANNOTATION)
    for video in document.videos:
        _add(video, splits, config.egoper, simulated, folders, gathered)
    gathered.released |= {take_id(video_id): role for video_id, role in splits.used.items()}
    gathered.rejects += leftover_rejects(folders)
    return Reading(
        candidates=tuple(sorted(gathered.candidates, key=lambda c: c.take.take_id)),
        rejects=tuple(gathered.rejects), n_in=document.n_units, released=gathered.released,
        scenarios=frozenset(v.task for v in document.videos if v.video_id in splits.used),
        counts=_counts(document, gathered),
    )  # fmt: skip


def _documents(folders: Folders, config: IngestConfig) -> tuple[EgoPerFile, _Splits]:
    needed(folders, [ANNOTATION], ADVICE)
    document = parse_annotation(read_document(folders.corpus, ANNOTATION), ANNOTATION)
    return document, _splits(folders, sorted(document.steps), config)


def _add(
    video: EgoPerVideo, splits: _Splits, config: EgoPerConfig, is_simulated: bool, folders: Folders, gathered: Gathered
) -> None:
    take = _take(video, is_simulated, folders)
    role = splits.used.get(video.video_id)
    if role is None:
        return gathered.reject(_unused(video.video_id, splits), take.take_id, video.n_units, ANNOTATION)
    for offset, fault in video.faults:
        gathered.reject(fault, take.take_id, 1, ANNOTATION, offset)
    points: list[Point] = []
    for segment in video.segments:
        fault_or_none = _filter_fault(segment, config)
        if fault_or_none is None:
            points.append(_point(segment))
        else:
            gathered.reject(fault_or_none, take.take_id, 1, ANNOTATION, segment.offset)
        gathered.counts["background segments"] += segment.is_background
        gathered.counts["segments with an error"] += segment.error_type != NORMAL
    gathered.counts[f"videos without an error, {role}"] += all(s.error_type == NORMAL for s in video.segments)
    return gathered.add(take, role, points, ANNOTATION, folders)


def _unused(video_id: str, splits: _Splits) -> Fault:
    if video_id in splits.unused:
        return Fault(RejectCode.SPLIT_UNUSED, "it is in the list of a split that is not used")
    return splits.faults.get(video_id, Fault(RejectCode.NO_SPLIT, "no list of a split names it"))


def _filter_fault(segment: EgoPerSegment, config: EgoPerConfig) -> Fault | None:
    if segment.is_background and not config.keep_background:
        return Fault(RejectCode.BACKGROUND, "the segment is background")
    if segment.error_type in config.leave_out:
        return Fault(RejectCode.ERROR_LEFT_OUT, f"action_type is {segment.error_type}")
    return None


def _point(segment: EgoPerSegment) -> Point:
    details = Details(error_type=segment.error_type, error_description=segment.error_description)
    return span_point(segment.span_s, segment.step, segment.offset, details=details)


def _take(video: EgoPerVideo, is_simulated: bool, folders: Folders) -> TakeFiles:
    path = f"{task_folder(folders, video.task)}/trim_videos/{video.video_id}.mp4"
    return TakeFiles(
        uid=video.video_id, corpus=SIMULATED if is_simulated else CORPUS, take_id=take_id(video.video_id),
        name=video.video_id, scenario=video.task, participant=participant_of(video.video_id), capture=video.video_id,
        camera="", video=path, trajectory=None, timesync=None, calibration=None, timesync_start=None, timesync_end=None,
    )  # fmt: skip


def union_of_steps(document: EgoPerFile) -> frozenset[str]:
    """Return the steps of all tasks, joined by name; background is none of them."""
    return frozenset(normalise(step, ()) for steps in document.steps.values() for step in steps)


def _counts(document: EgoPerFile, gathered: Gathered) -> tuple[CorpusCount, ...]:
    rows = [
        ("tasks", len(document.steps), 5, ""),
        ("videos as released", len(document.videos) + len(document.lost), None, ""),
        ("steps, each task's own", sum(len(steps) for steps in document.steps.values()), None, ""),
        ("steps, joined by name", len(union_of_steps(document)), 57, ""),
    ]  # fmt: skip
    for what, setting in (
        ("background segments", "ingest.egoper.keep_background"), ("segments with an error", "ingest.egoper.leave_out"),
        ("videos without an error, train", ""), ("videos without an error, test", ""), (OVERLAPS, ""),
    ):  # fmt: skip
        rows.append((what, gathered.counts[what], None, setting))
    return tuple(CorpusCount(what=what, ours=ours, paper=paper, setting=said) for what, ours, paper, said in rows)


def list_egoper(corpus: Corpus, config: IngestConfig) -> Listing:
    """List what `read_egoper` and the probing of its videos read, without opening a video.

    Raises:
        InputError: annotation.json or all lists are absent or cannot be read.
    """
    folders = Folders(corpus)
    document, splits = _documents(folders, config)
    used = [v for v in document.videos if v.video_id in splits.used]
    videos = {_take(video, False, folders).video for video in used}
    lists = {p for paths in split_files(folders, sorted(document.steps), config.egoper).values() for p in paths}
    there = {path for path in lists if folders.is_there(path)} | set(splits.files)
    world = {WORLD_FILE} if folders.is_there(WORLD_FILE) else set()
    for video in videos:
        folders.is_there(video)
    return Listing(tuple(sorted({ANNOTATION} | there | videos | world)), (), tuple(sorted(folders.leftovers())))


FILTERS = "ingest.egoper: splits, keep_background, leave_out; ingest.test_split"
EGOPER = Reader(
    read=read_egoper, listing=list_egoper, splits="the split lists", unit="segments",
    published={
        "takes, train": Published(149, FILTERS), "takes, test": Published(67, FILTERS),
        "segments, train": Published(2018, FILTERS), "segments, test": Published(921, FILTERS),
        "labels": Published(57, FILTERS),
    },
)  # fmt: skip
"""Counts of the paper: its appendix on data sets."""
