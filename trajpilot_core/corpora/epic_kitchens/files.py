"""Tables of EPIC-KITCHENS-100 -> narrated actions, classes, and the sets of its protocol.

Source: repository epic-kitchens/epic-kitchens-100-annotations (README and files). Times come from the timestamps: the
frame numbers index released pictures at 50 or 60 Hz, not the frames of a video.
"""

import re
from collections import Counter
from typing import NamedTuple

from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import Fault, parted
from trajpilot_core.corpora.formats.strict import CsvRow, FileFaultError, parse_table, shown
from trajpilot_core.store.corpus_files import SAFE_NAME

HEADER = (
    "narration_id,participant_id,video_id,narration_timestamp,start_timestamp,stop_timestamp,start_frame,"
    "stop_frame,narration,verb,verb_class,noun,noun_class,all_nouns,all_noun_classes"
)
COLUMNS = tuple(HEADER.split(","))
TIMESTAMP = re.compile(r"(\d{2,3}):([0-5]\d):([0-5]\d(?:\.\d{1,9})?)", re.ASCII)
CLASS = re.compile(r"\d{1,6}", re.ASCII)
RATE = re.compile(r"\d{1,4}(\.\d{1,18})?", re.ASCII)
LENGTH = re.compile(r"\d{1,6}(\.\d{1,18})?", re.ASCII)
MALFORMED = RejectCode.RECORD_MALFORMED


class Action(NamedTuple):
    """One narrated action, in seconds of its video."""

    offset: int
    """Line in its file."""
    narration_id: str
    participant: str
    video_id: str
    span_s: tuple[float, float]
    narration: str
    verb_class: int
    noun_class: int


class EpicFile(NamedTuple):
    """The content of an action table."""

    actions: tuple[Action, ...]
    lost: tuple[tuple[str, int, Fault], ...]
    """(Video id or empty, line, fault) of each unusable row."""
    n_units: int


def seconds_of(timestamp: str) -> float | None:
    """Return the seconds of `HH:MM:SS.ss`; None where the text is not of that form."""
    match = TIMESTAMP.fullmatch(timestamp)
    if match is None:
        return None
    hours, minutes, seconds = match.groups()
    return (int(hours) * 60 + int(minutes)) * 60 + float(seconds)


def parse_actions(content: bytes, where: str) -> EpicFile:
    """Parse EPIC_100_train.csv or EPIC_100_validation.csv.

    Raises FileFaultError: the file is no such table, or it is cut off.
    """
    rows = parse_table(content, where, COLUMNS, ends_lines=True)
    times = Counter(row.cells["narration_id"] for row in rows if row.cells is not None)
    actions, lost = parted((((row.cells or {}).get("video_id", ""), row.line), _action(row, times)) for row in rows)
    return EpicFile(actions, tuple((*key, fault) for key, fault in lost), len(rows))


def _action(row: CsvRow, times: Counter[str]) -> Action | Fault:
    cells = row.cells
    if cells is None:
        return Fault(MALFORMED, f"the line has {row.n_cells} cells, not as many as the header")
    uid, participant, video = cells["narration_id"], cells["participant_id"], cells["video_id"]
    for name, value in (("participant_id", participant), ("video_id", video)):
        if not SAFE_NAME.fullmatch(value):
            return Fault(RejectCode.TAKE_NAME_INVALID, f"{name} is {shown(value)!r}")
    if not uid or times[uid] > 1 or not video.startswith(f"{participant}_"):
        detail = f"narration_id {shown(uid)!r} occurs {times[uid]} times, video {video} of {participant}"
        return Fault(MALFORMED, detail)
    start_s, stop_s = seconds_of(cells["start_timestamp"]), seconds_of(cells["stop_timestamp"])
    if start_s is None or stop_s is None:
        stamps = [cells[f"{name}_timestamp"] for name in ("start", "stop")]
        return Fault(RejectCode.TS_INVALID, f"timestamps are {shown(stamps)}, expected HH:MM:SS.ss")
    classes = [cells["verb_class"], cells["noun_class"]]
    if not all(CLASS.fullmatch(value) for value in classes):
        return Fault(MALFORMED, f"verb_class and noun_class are {shown(classes)}")
    verb, noun = map(int, classes)
    return Action(row.line, uid, participant, video, (start_s, stop_s), cells["narration"], verb, noun)


def parse_classes(content: bytes, where: str) -> dict[int, str]:
    """Parse EPIC_100_verb_classes.csv or EPIC_100_noun_classes.csv: id -> key.

    Raises FileFaultError: the file is no such table, or ids are not 0, 1, 2 and so on, each once.
    """
    rows = [row.cells for row in parse_table(content, where, ("id", "key"))]
    names = {int(r["id"]): r["key"] for r in rows if r is not None and CLASS.fullmatch(r["id"]) and r["key"]}
    if not names or len(names) != len(rows) or set(names) != set(range(len(rows))):
        detail = f"the ids of {len(rows)} classes are not 0 to {len(rows) - 1}, each once with a key"
        raise FileFaultError(where, detail)
    return names


def parse_column(content: bytes, where: str, column: str, form: re.Pattern[str] = CLASS) -> frozenset[str]:
    """Parse a list of classes or participants such as EPIC_100_tail_verbs.csv, of which one column is used.

    Raises FileFaultError: the file is no such table, or it is empty.
    """
    texts = set()
    rows = parse_table(content, where, (column,))
    if not rows:
        raise FileFaultError(where, f"there are no rows below the header {column}")
    for row in rows:
        text = "" if row.cells is None else row.cells[column].strip()
        if not form.fullmatch(text):
            raise FileFaultError(where, f"{column} is {shown(text)!r}", row.line, "line")
        texts.add(text)
    return frozenset(texts)


class VideoInfo(NamedTuple):
    """Facts of a video in EPIC_100_video_info.csv."""

    fps: float
    duration_s: float | None


def parse_videos(content: bytes, where: str, *, has_lengths: bool = False) -> dict[str, VideoInfo]:
    """Parse EPIC_100_video_info.csv: video id -> its rate, and its length where requested and stated.

    Raises FileFaultError: the file is no such table, or a rate is no number from 1 to 1,000.
    """
    videos = {}
    for row in parse_table(content, where, ("video_id", "fps", *(["duration"] if has_lengths else []))):
        cells = row.cells or {"video_id": "", "fps": ""}
        rate = float(cells["fps"]) if RATE.fullmatch(cells["fps"]) else 0.0
        if not 1 <= rate <= 1000:
            raise FileFaultError(where, f"fps is {shown(cells['fps'])!r}", row.line, "line")
        length = cells.get("duration", "") if has_lengths else ""
        videos[cells["video_id"]] = VideoInfo(rate, float(length) if LENGTH.fullmatch(length) else None)
    return videos


def words(key: str) -> str:
    """Return a class key as words: `board:chopping` is a chopping board, `put-down` is put down."""
    return " ".join(" ".join(reversed(key.split(":"))).replace("-", " ").split())
