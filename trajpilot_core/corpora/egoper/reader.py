"""EgoPER -> one candidate take per trimmed video, its steps joined over the tasks by name; the rest becomes rejects.

Decisions: docs/decisions/segment-corpora.md. The counted unit is the segment, including background.
"""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.annotation import SIMULATED, Details
from schemas.config import IngestConfig
from schemas.corpora import EgoPerConfig
from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import (
    AnnotatedPoint,
    CorpusReading,
    Fault,
    Published,
    Released,
    TakeFiles,
    count,
    span_point,
)
from trajpilot_core.corpora.egoper.files import (
    EgoPerSegment,
    EgoPerVideo,
    parse_annotation,
    parse_split,
    participant_of,
)
from trajpilot_core.corpora.formats.folders import Folders, needed, read_document
from trajpilot_core.corpora.formats.strict import shown
from trajpilot_core.corpora.records.annotations import normalise
from trajpilot_core.corpora.records.candidates import ReaderState, listed_by
from trajpilot_core.corpora.records.tables import LABELS, TEST_SEGMENTS, TEST_TAKES, TRAIN_SEGMENTS, TRAIN_TAKES
from trajpilot_core.corpora.spec import CorpusSpec, Download
from trajpilot_core.store.corpus_files import Corpus

CORPUS = "egoper"
ANNOTATION = "annotation.json"
ADVICE = "ask its authors for the data by e-mail (docs/data.md)"
OFFICIAL = {"train": "training.txt", "val": "validation.txt", "test": "test.txt"}
LISTED = {"train": "splits/train.txt", "val": "splits/val.txt", "test": "splits/test.txt"}


class _Splits(NamedTuple):
    used: dict[str, Released]
    """Video id -> its use."""
    faults: dict[str, Fault]
    """Video ids in more than one list."""
    unused: frozenset[str]
    """Video ids in a list that is not used."""
    files: frozenset[str]
    """Lists that exist."""


def take_id(video_id: str) -> str:
    """Return the take's id in our tables."""
    return f"{CORPUS}:{shown(video_id)}"


def task_folder(folders: Folders, task: str) -> str:
    """Return the folder of a task: annotations name it in lower case, some downloads begin it with a capital."""
    names = (task, task.capitalize(), task.upper())
    holds = (name for name in names for inner in ("trim_videos", "") if folders.names(f"{name}/{inner}".rstrip("/")))
    return next(holds, task)


def _splits(folders: Folders, tasks: Sequence[str], config: IngestConfig) -> _Splits:
    """Read all lists of video ids, also unused ones, to detect a video in two of them.

    Raises InputError: a list that is used is missing, or one cannot be read.
    """
    of: dict[str, set[str]] = {}
    files = {split: [path] for split, path in LISTED.items()}  # one in all, or one a task
    if config.egoper.splits == "official":
        files = {s: [f"{task_folder(folders, task)}/{name}" for task in tasks] for s, name in OFFICIAL.items()}
    for path in (path for split in ("train", config.test_split) for path in files[split]):
        needed(folders, [path], f"{ADVICE}, or set ingest.egoper.splits")
    lists = {path: split for split, paths in files.items() for path in paths if folders.is_there(path)}
    for path, split in lists.items():
        for video_id in parse_split(read_document(folders.corpus, path), path):
            of.setdefault(video_id, set()).add(split)
    roles: dict[str, Released] = {"train": "train", config.test_split: "test"}
    only = {video_id: next(iter(splits)) for video_id, splits in of.items() if len(splits) == 1}
    used = {video_id: roles[split] for video_id, split in only.items() if split in roles}
    faults = {
        video_id: Fault(RejectCode.NO_SPLIT, f"it is in the lists of {', '.join(sorted(splits))}")
        for video_id, splits in of.items()
        if video_id not in only
    }
    return _Splits(used, faults, frozenset(of) - set(used) - set(faults), frozenset(lists))


def read_egoper(corpus: Corpus, config: IngestConfig) -> CorpusReading:
    """Read annotation.json and the lists of the splits.

    Raises InputError: annotation.json or a list that is used is missing or cannot be read.
    """
    folders, gathered = Folders(corpus), ReaderState()
    needed(folders, [ANNOTATION], ADVICE)
    document = parse_annotation(read_document(corpus, ANNOTATION), ANNOTATION)
    splits = _splits(folders, sorted(document.steps), config)
    gathered.files |= {ANNOTATION, *splits.files}
    known = {video.video_id for video in document.videos}
    for video_id, n_units, fault in document.lost:
        gathered.reject(fault, take_id(video_id) if video_id else "", n_units, ANNOTATION)
        known.add(video_id)
    for video_id in sorted({*splits.used, *splits.faults} - known):
        fault = Fault(RejectCode.TAKE_UNKNOWN, f"a list names it, {ANNOTATION} does not")
        gathered.reject(fault, take_id(video_id), 0, ANNOTATION)
    for video in document.videos:
        _add(video, splits, config.egoper, folders, gathered)
    gathered.released |= {take_id(video_id): role for video_id, role in splits.used.items()}
    tasks = {video.task for video in document.videos if video.video_id in splits.used}
    joined = {normalise(step, ()) for steps in document.steps.values() for step in steps}
    counts = count("tasks", len(document.steps), 5), count("steps, joined by name", len(joined), 57)
    return gathered.reading(folders, document.n_units, tasks, counts)


def _add(video: EgoPerVideo, splits: _Splits, config: EgoPerConfig, folders: Folders, gathered: ReaderState) -> None:
    take = TakeFiles(
        uid=video.video_id,
        corpus=SIMULATED if folders.is_simulated else CORPUS,
        take_id=take_id(video.video_id),
        name=video.video_id,
        scenario=video.task,
        participant=participant_of(video.video_id),
        capture=video.video_id,
        video=f"{task_folder(folders, video.task)}/trim_videos/{video.video_id}.mp4",
    )
    role = splits.used.get(video.video_id)
    if role is None:
        fault = splits.faults.get(video.video_id, Fault(RejectCode.NO_SPLIT, "no list of a split names it"))
        if video.video_id in splits.unused:
            fault = Fault(RejectCode.SPLIT_UNUSED, "it is in the list of a split that is not used")
        return gathered.reject(fault, take.take_id, video.n_units, ANNOTATION)
    gathered.files.add(take.video)
    for offset, fault in video.faults:
        gathered.reject(fault, take.take_id, 1, ANNOTATION, offset)
    results = ((s.offset, _point(s, config)) for s in video.segments)
    points = gathered.kept(results, take.take_id, ANNOTATION)
    return gathered.add(take, role, points, ANNOTATION, folders)


def _point(segment: EgoPerSegment, config: EgoPerConfig) -> AnnotatedPoint | Fault:
    """Return the point of a segment, or the setting that leaves it out."""
    if segment.is_background and not config.keep_background:
        return Fault(RejectCode.BACKGROUND, "the segment is background")
    if segment.error_type in config.leave_out:
        return Fault(RejectCode.ERROR_LEFT_OUT, f"action_type is {segment.error_type}")
    return span_point(segment.span_s, segment.step, segment.offset, details=Details(error_type=segment.error_type))


FILTERS = "ingest.egoper: splits, keep_background, leave_out; ingest.test_split"
EGOPER = CorpusSpec(
    name="egoper",
    title="EgoPER",
    ids=CORPUS,
    read=read_egoper,
    listing=listed_by(read_egoper),
    published={  # paper, appendix on data sets
        TRAIN_TAKES: Published(149, FILTERS),
        TEST_TAKES: Published(67, FILTERS),
        TRAIN_SEGMENTS: Published(2018, FILTERS),
        TEST_SEGMENTS: Published(921, FILTERS),
        LABELS: Published(57, FILTERS),
    },
    splits="the split lists",
    unit="segments",
    download=Download(
        commands=(),
        access="ask its authors by e-mail (https://www.khoury.northeastern.edu/home/eelhami/egoper.htm); unpack each "
        "task's videos to ROOT/<task>/trim_videos, its three lists to ROOT/<task>, annotation.json to ROOT",
    ),
    layout="egoper",
)
