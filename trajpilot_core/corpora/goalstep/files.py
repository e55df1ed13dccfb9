"""Files of Ego4D GoalStep -> entries with their steps, groups of videos, and lengths of videos.

Source: repository facebookresearch/ego4d-goalstep (README, tools). What the format leaves open:
docs/decisions/segment-corpora.md. The counted unit is the step; the substeps inside of it are not read.
"""

from collections import Counter
from typing import NamedTuple

from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import Fault, parted
from trajpilot_core.corpora.formats.strict import (
    FileFaultError,
    as_id,
    as_object,
    as_seconds,
    as_span,
    as_text,
    n_items,
    parse,
    parse_table,
    shown,
)
from trajpilot_core.store.corpus_files import SAFE_NAME

GROUP = "grp-"
RELEVANCE = ("essential", "optional", "irrelevant", "unsure")
MALFORMED = RejectCode.RECORD_MALFORMED
DEFAULT_RELEVANCE = "essential"
"""Where the field is absent: the most frequent value of the released validation file."""


class Step(NamedTuple):
    """One step, in seconds of its entry."""

    offset: int
    """Place in its entry."""
    span_s: tuple[float, float]
    category: str
    relevance: str | None
    """One of RELEVANCE; None: the field is absent."""


class Entry(NamedTuple):
    """One video, or one group of videos laid end to end."""

    uid: str
    goal_category: str
    steps: tuple[Step, ...]
    faults: tuple[tuple[int, Fault], ...]
    """Place in the entry, and why the segment is lost."""
    n_units: int


class Document(NamedTuple):
    """The content of an annotation file."""

    entries: tuple[Entry, ...]
    lost: tuple[tuple[str, int, int, Fault], ...]
    """Entries that cannot be used: uid or empty, place in the file, segments, and why."""
    n_units: int


def parse_goalstep(content: bytes, where: str) -> Document:
    """Parse goalstep_train.json, or goalstep_valid.json, which a download calls goalstep_val.json.

    Raises FileFaultError: the file is no such JSON.
    """
    videos = _videos(parse(content, where), where)
    uids = [as_id(as_object(video).get("video_uid")) for video in videos]
    times = Counter(uids)
    entries, faults = parted((index, _entry(video, times)) for index, video in enumerate(videos))
    lost = tuple((uids[index] or "", index, n_items(videos[index], "segments"), fault) for index, fault in faults)
    return Document(entries, lost, sum(n_items(video, "segments") for video in videos))


def _videos(document: object, where: str) -> list[object]:
    videos = as_object(document).get("videos")
    if not isinstance(videos, list):
        raise FileFaultError(where, "expected one object with the list `videos`")
    return videos


def _entry(video: object, times: Counter[str | None]) -> Entry | Fault:
    fields = as_object(video)
    uid = as_id(fields.get("video_uid"))
    if uid is None:
        return Fault(MALFORMED, f"an entry has no video_uid: {shown(video)}")
    if not SAFE_NAME.fullmatch(uid):
        return Fault(RejectCode.TAKE_NAME_INVALID, f"video_uid is {shown(uid)!r}")
    if times[uid] > 1:
        return Fault(MALFORMED, f"the file contains the video_uid {times[uid]} times")
    listed = fields.get("segments")
    if not isinstance(listed, list):
        return Fault(MALFORMED, f"`segments` is {shown(listed)}, expected a list")
    steps, faults = parted((offset, _step(step, offset)) for offset, step in enumerate(listed))
    goal_category = as_text(fields.get("goal_category")) or "unknown"
    return Entry(uid, goal_category, steps, faults, len(listed))


def _step(value: object, offset: int) -> Step | Fault:
    if not isinstance(value, dict):
        return Fault(MALFORMED, f"a segment is not an object: {shown(value)}")
    if "start_time" not in value or "end_time" not in value:
        return Fault(MALFORMED, f"a segment lacks start_time or end_time: {shown(value)}")
    span_s = as_span(value["start_time"], value["end_time"])
    if span_s is None:
        return Fault(RejectCode.TS_INVALID, f"times are {shown(value['start_time'])} and {shown(value['end_time'])}")
    category = as_text(value.get("step_category"))
    if not category:
        return Fault(MALFORMED, f"step_category is {shown(value.get('step_category'))}")
    relevance = value.get("is_relevant")
    if relevance is not None and (not isinstance(relevance, str) or relevance not in RELEVANCE):
        return Fault(MALFORMED, f"is_relevant is {shown(relevance)}, it may be {', '.join(RELEVANCE)}")
    return Step(offset, span_s, category, relevance)


def parse_groups(content: bytes, where: str) -> dict[str, tuple[str, ...] | None]:
    """Parse goalstep_video_groups.tsv: group id -> its videos in order; None where the table contradicts itself.

    Raises FileFaultError: the file is no such table, or it is cut off.
    """
    groups: dict[str, tuple[str, ...] | None] = {}
    for row in parse_table(content, where, ["video_group"], "\t", ends_lines=True):
        listed = row.cells["video_group"].strip() if row.cells is not None else ""
        uids = tuple(
            part.strip().strip("'") for part in listed.strip("[]").split(",")
        )  # a Python list, never evaluated
        name = GROUP + uids[0]
        is_usable = len(set(uids)) == len(uids) and all(SAFE_NAME.fullmatch(uid) for uid in uids)
        groups[name] = uids if is_usable and groups.get(name, uids) == uids else None
    return groups


class Ego4dVideo(NamedTuple):
    """Facts of a video in ego4d.json."""

    duration_s: float | None
    participant: str | None


def parse_ego4d(content: bytes, where: str) -> dict[str, Ego4dVideo]:
    """Parse ego4d.json: video uid -> length and participant; unusable records are ignored.

    Raises FileFaultError: the file is no such JSON.
    """
    videos: dict[str, Ego4dVideo] = {}
    for video in _videos(parse(content, where), where):
        fields = as_object(video)
        uid = as_id(fields.get("video_uid"))
        if uid is not None:
            duration_s = as_seconds(fields.get("duration_sec"))
            is_again = uid in videos and videos[uid].duration_s != duration_s
            participant = as_id(fields.get("fb_participant_id"))
            videos[uid] = Ego4dVideo(None if is_again else duration_s or None, participant)
    return videos
