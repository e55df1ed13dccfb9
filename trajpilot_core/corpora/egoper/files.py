"""annotation.json and split lists of EgoPER -> videos with named segments.

Source: repository robert80203/EgoPER_official (README, libs/datasets/egoper.py); no real file was seen. What the format
leaves open: docs/decisions/segment-corpora.md. The counted unit is the segment, including background.
"""

import re
from collections import Counter
from typing import NamedTuple

from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import Fault, parted
from trajpilot_core.corpora.formats.strict import (
    FileFaultError,
    as_id,
    as_integer,
    as_object,
    as_span,
    as_text,
    n_items,
    parse,
    shown,
    text_of,
)
from trajpilot_core.incoming import BOM
from trajpilot_core.store.corpus_files import SAFE_NAME

MALFORMED = RejectCode.RECORD_MALFORMED
BACKGROUND_INDEX = 0
BACKGROUND_NAMES = frozenset({"bg", "background"})
"""Allowed names of index 0; a step with that index would silently be lost as background."""
LISTS = ("action", "action_type", "time_stamp")
VIDEO_ID = re.compile(r"(?P<task>.+)_u(?P<user>\d+)_a(?P<attempt>\d+)_(?P<kind>normal|error)_(?P<number>\d+)")


class EgoPerSegment(NamedTuple):
    """One segment, in seconds of its trimmed video."""

    offset: int
    """Place in the lists of its video."""
    span_s: tuple[float, float]
    step: str
    is_background: bool
    error_type: str


class EgoPerVideo(NamedTuple):
    """One video of one task."""

    task: str
    video_id: str
    segments: tuple[EgoPerSegment, ...]
    faults: tuple[tuple[int, Fault], ...]
    n_units: int


class EgoPerFile(NamedTuple):
    """The content of annotation.json."""

    videos: tuple[EgoPerVideo, ...]
    lost: tuple[tuple[str, int, Fault], ...]
    """(Video id or empty, segments, fault) of unusable videos, or tasks without videos."""
    steps: dict[str, tuple[str, ...]]
    """Task -> its steps in order of index, without background."""
    n_units: int


class _Names(NamedTuple):
    actions: dict[int, str]
    errors: dict[int, str]


def participant_of(video_id: str) -> str | None:
    """Return the user in a video id of the known form."""
    match = VIDEO_ID.fullmatch(video_id)
    return f"u{match['user']}" if match else None


def parse_annotation(content: bytes, where: str) -> EgoPerFile:
    """Parse annotation.json: action indices count per task, so steps are joined by name.

    Raises FileFaultError: the file is no such JSON, or a task of it has no list of videos, so that none can be counted.
    """
    document = as_object(parse(content, where))
    if not document:
        raise FileFaultError(where, "expected one object, task -> its annotation")
    listed: dict[str, list[object]] = {}
    for task, value in document.items():
        segments = as_object(value).get("segments")
        if not isinstance(segments, list):
            raise FileFaultError(where, f"`segments` of task {shown(task)} is {shown(segments)}, expected a list")
        listed[task] = segments
    records = [record for of_task in listed.values() for record in of_task]
    times = Counter(map(_id, records))
    videos: list[EgoPerVideo] = []
    lost: list[tuple[str, int, Fault]] = []
    steps: dict[str, tuple[str, ...]] = {}
    for task, value in sorted(document.items()):
        names = _names(task, value)
        if isinstance(names, Fault):
            lost += [(_id(record), _count(record), names) for record in listed[task]] or [("", 0, names)]
            continue
        steps[task] = tuple(names.actions[i] for i in sorted(names.actions) if i != BACKGROUND_INDEX)
        good, bad = parted(((_id(r), _count(r)), _video(task, r, names, times)) for r in listed[task])
        videos += good
        lost += [(*key, fault) for key, fault in bad]
    return EgoPerFile(tuple(videos), tuple(lost), steps, sum(map(_count, records)))


def _id(record: object) -> str:
    return as_id(as_object(record).get("video_id")) or ""


def _count(record: object) -> int:
    """Return how many segments a video claims: the longest of its lists."""
    return max(n_items(as_object(record).get("labels"), name) for name in LISTS)


def _names(task: str, value: object) -> _Names | Fault:
    if not isinstance(value, dict) or not SAFE_NAME.fullmatch(task):
        return Fault(MALFORMED, f"task {shown(task)!r} is no folder name, or its annotation is no object")
    actions, errors = _by_index(value.get("action2idx")), _by_index(value.get("actiontype2idx"))
    if actions is None or errors is None:
        detail = f"task {task}: action2idx or actiontype2idx is no object of name -> index, each index once"
        return Fault(MALFORMED, detail)
    background = actions.get(BACKGROUND_INDEX, "BG")
    if background.strip().lower() not in BACKGROUND_NAMES:
        detail = f"task {task}: index {BACKGROUND_INDEX} is {shown(background)!r}, expected the background"
        return Fault(MALFORMED, detail)
    return _Names(actions, errors)


def _by_index(value: object) -> dict[int, str] | None:
    """Return index -> name; None where an index or a name is invalid or occurs twice."""
    if not isinstance(value, dict) or not all(map(as_text, value)):
        return None
    names = {index: name for name, text in value.items() if (index := index_of(text)) is not None}
    return names if len(names) == len(value) else None


def index_of(value: object) -> int | None:
    """Return an index, written as a number or as a string of digits."""
    if isinstance(value, str):
        text = value.strip()
        return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
    index = as_integer(value)
    return index if index is not None and index >= 0 else None


def _video(task: str, record: object, names: _Names, times: Counter[str]) -> EgoPerVideo | Fault:
    video_id, labels = _id(record), as_object(record).get("labels")
    if not video_id or not isinstance(labels, dict):
        return Fault(MALFORMED, f"a record of task {task} lacks video_id or labels")
    if not SAFE_NAME.fullmatch(video_id):
        return Fault(RejectCode.TAKE_NAME_INVALID, f"video_id is {shown(video_id)!r}")
    if times[video_id] > 1:
        return Fault(MALFORMED, f"the file contains the video_id {times[video_id]} times")
    lists = {name: labels[name] for name in LISTS if isinstance(labels.get(name), list)}
    if len(lists) != len(LISTS) or len(set(map(len, lists.values()))) != 1:
        sizes = ", ".join(f"{name} {len(lists[name]) if name in lists else 'absent'}" for name in LISTS)
        return Fault(MALFORMED, f"the lists of labels are not of one length: {sizes}")
    rows = enumerate(zip(*lists.values(), strict=True))
    segments, faults = parted((i, _segment(i, row, names)) for i, row in rows)
    return EgoPerVideo(task, video_id, segments, faults, _count(record))


def _segment(offset: int, row: tuple[object, ...], names: _Names) -> EgoPerSegment | Fault:
    action, kind, times = row
    if not isinstance(times, list) or len(times) != 2:
        return Fault(MALFORMED, f"time_stamp is {shown(times)}, expected start and end")
    span_s = as_span(*times)
    if span_s is None:
        return Fault(RejectCode.TS_INVALID, f"time_stamp is {shown(times)}")
    index, error = index_of(action), index_of(kind)
    step = "BG" if index == BACKGROUND_INDEX else names.actions.get(-1 if index is None else index)
    error_type = names.errors.get(-1 if error is None else error)
    if step is None or error_type is None:
        detail = f"action {shown(action)} or action_type {shown(kind)} has no name in this task"
        return Fault(RejectCode.LABEL_UNKNOWN, detail)
    return EgoPerSegment(offset, span_s, step, index == BACKGROUND_INDEX, error_type)


def parse_split(content: bytes, where: str) -> list[str]:
    """Parse a list of video ids, one per line, without suffix; empty lines and a suffix .mp4 are ignored.

    Raises FileFaultError: not UTF-8, or no line is a video id.
    """
    lines = text_of(content.removeprefix(BOM), where).splitlines()
    ids = [line.strip().removesuffix(".mp4") for line in lines if line.strip()]
    if ids and not any(SAFE_NAME.fullmatch(name) for name in ids):
        raise FileFaultError(where, f"expected one video id a line, it begins with {shown(ids[0])!r}")
    return ids
