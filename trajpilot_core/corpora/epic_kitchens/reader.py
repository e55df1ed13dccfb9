"""EPIC-KITCHENS-100 -> one candidate take per video with the clip before each action; the rest becomes rejects.

Decisions: docs/decisions/segment-corpora.md. The counted unit is the row of the action tables.
"""

from collections import defaultdict
from typing import NamedTuple

from schemas.annotation import SIMULATED, Details
from schemas.config import IngestConfig
from schemas.corpora import EpicConfig
from schemas.rejects import RejectCode
from trajpilot_core.corpora.base import AnnotatedPoint, CorpusReading, Fault, Released, TakeFiles, count
from trajpilot_core.corpora.epic_kitchens.files import (
    Action,
    VideoInfo,
    parse_actions,
    parse_classes,
    parse_column,
    parse_videos,
    words,
)
from trajpilot_core.corpora.formats.folders import Folders, needed, read_document
from trajpilot_core.corpora.formats.strict import shown
from trajpilot_core.corpora.records.candidates import ReaderState, claimed_twice, listed_by
from trajpilot_core.corpora.released import EPIC_SLOWFAST
from trajpilot_core.corpora.spec import CorpusSpec, Download, places
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import SAFE_NAME, Corpus

CORPUS = "epic"
SCENARIO = "kitchen"
PLACES = ("", "annotations", "epic-kitchens-100-annotations")
"""Folders that may contain the tables; the last is the name of a clone of their repository."""
TABLES: dict[Released, str] = {"train": "EPIC_100_train.csv", "test": "EPIC_100_validation.csv"}
VERBS, NOUNS = "EPIC_100_verb_classes.csv", "EPIC_100_noun_classes.csv"
"""Not EPIC_100_noun_classes_v2.csv, which has 305 classes: they are not those of the benchmark."""
TAIL_VERBS, TAIL_NOUNS = "EPIC_100_tail_verbs.csv", "EPIC_100_tail_nouns.csv"
VIDEO_INFO = "EPIC_100_video_info.csv"
UNSEEN = "EPIC_100_unseen_participant_ids_validation.csv"
CLASS_FILES = (VERBS, NOUNS, TAIL_VERBS, TAIL_NOUNS, UNSEEN)
VIDEO_ROOTS = ("", "EPIC-KITCHENS/")
"""The downloader creates the folder EPIC-KITCHENS in its output path."""
SUFFIXES = (".MP4", ".mp4")
CLIP_FRAMES, CLIP_HZ = 32, 8
"""Clip of V-JEPA 2's evaluation. Source: facebookresearch/vjepa2 at c2963a47."""
ANNOTATIONS = (
    "git clone https://github.com/epic-kitchens/epic-kitchens-100-annotations ROOT/epic-kitchens-100-annotations"
)
ADVICE = "clone epic-kitchens/epic-kitchens-100-annotations there (docs/data.md)"


class _KnownEpic(NamedTuple):
    """Everything that is read before the actions."""

    folders: Folders
    config: EpicConfig
    verbs: dict[int, str]
    nouns: dict[int, str]
    tail_verbs: frozenset[int]
    tail_nouns: frozenset[int]
    unseen: frozenset[str]
    """Participants."""
    class_paths: tuple[str, ...]
    """Tables of classes and sets."""
    tables: dict[Released, str]
    videos: dict[str, VideoInfo]
    """Video id -> its stated facts; read where the context counts frames or no video is read."""
    reads_videos: bool


def take_id(video_id: str) -> str:
    """Return the take's id in our tables."""
    return f"{CORPUS}:{shown(video_id)}"


def _known(corpus: Corpus, config: IngestConfig) -> _KnownEpic:
    if config.test_split == "test":
        raise InputError("the labels of EPIC-KITCHENS-100's test split are not public; set ingest.test_split to val")
    epic = config.epic_kitchens
    if epic.context == "seconds":
        _refuse_cut(epic.observed_s, config)
    folders = Folders(corpus)
    tables = {role: needed(folders, places(PLACES, name), ADVICE) for role, name in TABLES.items()}
    counts_frames, without = epic.context == "vjepa2_frames", config.video == "none"
    names = (*CLASS_FILES, *([VIDEO_INFO] if counts_frames or without else []))
    paths = {name: needed(folders, places(PLACES, name), ADVICE) for name in names}
    content = {name: (read_document(corpus, path), path) for name, path in paths.items()}
    known = _KnownEpic(
        folders,
        epic,
        verbs=parse_classes(*content[VERBS]),
        nouns=parse_classes(*content[NOUNS]),
        tail_verbs=frozenset(map(int, parse_column(*content[TAIL_VERBS], "verb"))),
        tail_nouns=frozenset(map(int, parse_column(*content[TAIL_NOUNS], "noun"))),
        unseen=parse_column(*content[UNSEEN], "participant_id", SAFE_NAME),
        class_paths=tuple(paths.values()),
        tables=tables,
        videos=parse_videos(*content[VIDEO_INFO], has_lengths=without) if VIDEO_INFO in content else {},
        reads_videos=not without,
    )
    if counts_frames:
        _refuse_cut(max((frames_s(video.fps) for video in known.videos.values()), default=0.0), config)
    return known


def _refuse_cut(length_s: float, config: IngestConfig) -> None:
    """Raise InputError where the cap would cut the observed clip."""
    cap_s = config.interval_cap_s
    if config.epic_kitchens.segment == "observed" and cap_s is not None and length_s > 2 * cap_s + 1e-9:
        raise InputError(
            f"the observed clip (ingest.epic_kitchens.observed_s, or its context) has {length_s:g} s, but "
            f"ingest.interval_cap_s cuts segments to {2 * cap_s} s around their middle, which would move their ends; "
            "set ingest.interval_cap_s to null"
        )


def read_epic(corpus: Corpus, config: IngestConfig) -> CorpusReading:
    """Read the action tables of training and validation; each video of a table is a candidate.

    Raises InputError: a table is missing or cannot be read, or settings contradict each other.
    """
    gathered = ReaderState()
    known = _known(corpus, config)
    gathered.files |= {*known.tables.values(), *known.class_paths}
    files = [(role, path, parse_actions(read_document(corpus, path), path)) for role, path in known.tables.items()]
    shared = claimed_twice((a.video_id, take_id(a.video_id), role) for role, _, file in files for a in file.actions)
    for role, path, file in files:
        for video_id, line, fault in file.lost:
            gathered.reject(fault, take_id(video_id) if video_id else "", 1, path, line)
        of: dict[tuple[str, str], list[Action]] = defaultdict(list)
        for action in file.actions:
            of[action.participant, action.video_id].append(action)
        for (participant, video_id), actions in of.items():
            take = _take(known, participant, video_id)
            gathered.released[take.take_id] = role
            gathered.files |= {take.video} - {""}
            if take.take_id in shared:
                gathered.reject(shared[take.take_id], take.take_id, len(actions), path)
                continue
            results = [(action.offset, _point(known, action, role)) for action in actions]
            points = gathered.kept(results, take.take_id, path)
            gathered.add(take, role, points, path, known.folders)
    n_in, scenarios = sum(file.n_units for _, _, file in files), [SCENARIO] if gathered.released else []
    pairs = {(a.verb_class, a.noun_class) for role, _, file in files if role == "train" for a in file.actions}
    counts = (count("pairs of verb and noun, train", len(pairs), 3568),)
    return gathered.reading(known.folders, n_in, scenarios, counts)


def _point(known: _KnownEpic, action: Action, released: Released) -> AnnotatedPoint | Fault:
    """Return the point of an action: the window before it with its label, or the action itself."""
    config = known.config
    if action.verb_class not in known.verbs or action.noun_class not in known.nouns:
        return Fault(RejectCode.LABEL_UNKNOWN, f"verb {action.verb_class} or noun {action.noun_class} is no class")
    if action.span_s[1] <= action.span_s[0]:
        return Fault(RejectCode.SEGMENT_EMPTY, f"{action.narration_id} has the span {action.span_s} s")
    length_s = config.observed_s
    if config.context == "vjepa2_frames":
        if action.video_id not in known.videos:
            return Fault(RejectCode.TAKE_UNKNOWN, f"{VIDEO_INFO} has no rate of {shown(action.video_id)}")
        length_s = frames_s(known.videos[action.video_id].fps)
    window_s = observed(action.span_s[0 if config.anchor == "start" else 1], config.gap_s, length_s)
    if window_s is None and config.segment == "observed":
        detail = f"{action.narration_id} starts at {action.span_s[0]} s, the gap is {config.gap_s} s"
        return Fault(RejectCode.TOO_EARLY, detail)
    verb, noun = words(known.verbs[action.verb_class]), words(known.nouns[action.noun_class])
    details = Details(
        annotated_start_s=action.span_s[0],
        annotated_end_s=action.span_s[1],
        verb_class=action.verb_class,
        noun_class=action.noun_class,
        observed_end_s=window_s and window_s[1],
        is_unseen=released == "test" and action.participant in known.unseen,
        is_tail_verb=action.verb_class in known.tail_verbs,
        is_tail_noun=action.noun_class in known.tail_nouns,
    )
    start_s, end_s = action.span_s if config.segment == "action" or window_s is None else window_s
    return AnnotatedPoint(
        (start_s + end_s) / 2,
        action.narration,
        action.narration_id,
        "",
        action.offset,
        (start_s, end_s),
        f"{verb} {noun}",
        f"v{action.verb_class}:n{action.noun_class}",
        details,
    )


def observed(anchor_s: float, gap_s: float, length_s: float) -> tuple[float, float] | None:
    """Return the observed window before an action; None where the gap starts before the video.

    It ends `gap_s` before the anchor and has `length_s`, or less at the start of the video, all in seconds.
    """
    end_s = anchor_s - gap_s
    return (max(end_s - length_s, 0.0), end_s) if end_s >= 0 else None


def frames_s(rate_hz: float) -> float:
    """Return the seconds of V-JEPA 2's clip: 32 frames with a stride of int(rate / 8), at least 1."""
    return CLIP_FRAMES * max(1, int(rate_hz / CLIP_HZ)) / rate_hz


def _take(known: _KnownEpic, participant: str, video_id: str) -> TakeFiles:
    stem = f"{participant}/videos/{video_id}"
    videos = [f"{root}{stem}{suffix}" for root in VIDEO_ROOTS for suffix in SUFFIXES]  # the downloader's comes first
    stated = None if known.reads_videos else known.videos.get(video_id)
    has_length = stated is not None and stated.duration_s is not None
    return TakeFiles(
        uid=video_id,
        corpus=SIMULATED if known.folders.is_simulated else CORPUS,
        take_id=take_id(video_id),
        name=video_id,
        scenario=SCENARIO,
        participant=participant,
        capture=video_id,
        video=(known.folders.first(videos) or videos[0]) if known.reads_videos else "",
        stated_s=stated.duration_s if stated else None,
        stated_fps=stated.fps if stated and has_length else None,
    )


EPIC_KITCHENS = CorpusSpec(
    name="epic_kitchens",
    title="EPIC-KITCHENS-100",
    ids=CORPUS,
    read=read_epic,
    listing=listed_by(read_epic),
    splits="the action tables",
    unit="rows",
    download=Download(
        commands=(
            ANNOTATIONS,
            "git clone https://github.com/epic-kitchens/epic-kitchens-download-scripts",
            "python epic-kitchens-download-scripts/epic_downloader.py --videos --action-recognition --train --val "
            "--output-path ROOT",
        ),
        access="annotations are CC BY-NC 4.0: no commercial use",
        without_videos=(ANNOTATIONS,),
    ),
    layout="epic_kitchens",
    has_plans=False,
    has_goal=False,
    released=(EPIC_SLOWFAST,),
)
