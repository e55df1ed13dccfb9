"""Ego4D GoalStep -> one candidate take per video file, with its steps; the rest becomes rejects.

Decisions: docs/decisions/segment-corpora.md. The counted unit is the step.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from schemas.annotation import SIMULATED, CorpusCount
from schemas.config import IngestConfig
from schemas.corpora import GoalStepConfig
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
from trajpilot_core.corpora.formats.folders import Folders, needed, read_document
from trajpilot_core.corpora.goalstep.files import (
    DEFAULT_RELEVANCE,
    GROUP,
    Ego4dVideo,
    Entry,
    Step,
    parse_ego4d,
    parse_goalstep,
    parse_groups,
)
from trajpilot_core.corpora.records.annotations import normalise
from trajpilot_core.corpora.records.candidates import ReaderState, claimed_twice, listed_by
from trajpilot_core.corpora.records.tables import LABELS, TEST_SEGMENTS, TRAIN_SEGMENTS
from trajpilot_core.corpora.spec import EGO4D_KEYS, CorpusSpec, Download, places
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import Corpus

CORPUS = "goalstep"
PLACES = ("v2/annotations", "v2_1/annotations", "annotations", "ego4d-goalstep/data", "")
"""Folders that may contain the annotation files: a download, a copy next to it, a clone of their repository."""
RELEASES = ("v2", "v2_1")
METADATA = ("ego4d.json", *(f"{release}/ego4d.json" for release in RELEASES))
FILES: dict[Released, tuple[str, ...]] = {
    "train": ("goalstep_train.json",),
    "test": ("goalstep_val.json", "goalstep_valid.json"),
}
ADVICE = "download the annotations and the metadata (docs/data.md)"
GROUPS = "goalstep_video_groups.tsv"
ROUNDING_S = 1e-6
CUTS = (1, 2, 3, 5, 10, 20)
"""Values of `min_label_train` for which labels are counted, to compare with the paper."""
PAPER_LABELS = 310
FILTERS = "ingest.goalstep: relevance, min_label_train"


class VideoPart(NamedTuple):
    """One video file of an entry."""

    uid: str
    start_s: float
    """Its start in the time of the entry."""
    end_s: float | None
    """Start of the next one; None for the last."""


class _Known(NamedTuple):
    """Everything that is read before the annotations."""

    folders: Folders
    config: GoalStepConfig
    annotations: dict[Released, str]
    """How a split is used -> its annotation file."""
    groups: dict[str, tuple[str, ...] | None]
    videos: dict[str, Ego4dVideo]


class _Annotated(NamedTuple):
    """One entry of one file, and the steps that pass the filters of a single step."""

    entry: Entry
    released: Released
    path: str
    parts: tuple[VideoPart, ...] | Fault
    home: str
    """Take to which rejects of the whole entry are attributed: its first file."""
    kept: list[Step]


def take_id(entry: str, uid: str) -> str:
    """Return the take's id: the entry, then the video file."""
    return f"{CORPUS}:{entry}:{uid}"


def read_goalstep(corpus: Corpus, config: IngestConfig) -> CorpusReading:
    """Read the annotations of the splits that are used, and what they are joined with.

    Raises InputError: a file of the annotations cannot be read or is missing, or the test split was requested.
    """
    folders, gathered = Folders(corpus), ReaderState()
    if config.test_split == "test":
        raise InputError("goalstep_test.json contains no times to test on; set ingest.test_split to val")
    annotations = {role: needed(folders, places(PLACES, *names), ADVICE) for role, names in FILES.items()}
    metadata, table = needed(folders, METADATA, ADVICE), needed(folders, places(PLACES, GROUPS), ADVICE)
    gathered.files |= {*annotations.values(), metadata, table}
    videos = parse_ego4d(read_document(corpus, metadata), metadata)
    groups = parse_groups(read_document(corpus, table), table)
    known = _Known(folders, config.goalstep, annotations, groups, videos)
    annotated, n_in = _annotated(known, gathered)
    labels = _cut(known, annotated, gathered)
    return gathered.reading(folders, n_in, gathered.scenarios, _counts(gathered, labels))


def _annotated(known: _Known, gathered: ReaderState) -> tuple[list[_Annotated], int]:
    """Read the entries of both files and drop the steps that a filter leaves out."""
    annotated: list[_Annotated] = []
    n_in = 0
    for released, path in known.annotations.items():
        document = parse_goalstep(read_document(known.folders.corpus, path), path)
        n_in += document.n_units
        for uid, index, n_units, fault in document.lost:
            gathered.reject(fault, take_id(uid, uid) if uid else "", n_units, path, index)
        for entry in document.entries:
            parts = _parts(known, entry)
            home = take_id(entry.uid, entry.uid if isinstance(parts, Fault) else parts[0].uid)
            for offset, fault in entry.faults:
                gathered.reject(fault, home, 1, path, offset)
            kept = []
            for step in entry.steps:
                relevance = step.relevance or DEFAULT_RELEVANCE
                if step.relevance is None:
                    detail = f"is_relevant of {step.category!r} at {step.span_s[0]} s"
                    gathered.reject(Fault(RejectCode.FIELD_MISSING, detail), home, 0, path, step.offset)
                if relevance in known.config.relevance:
                    kept.append(step)
                else:
                    fault = Fault(RejectCode.NOT_RELEVANT, f"is_relevant is {relevance}")
                    gathered.reject(fault, home, 1, path, step.offset)
            annotated.append(_Annotated(entry, released, path, parts, home, kept))
    return annotated, n_in


def _parts(known: _Known, entry: Entry) -> tuple[VideoPart, ...] | Fault:
    """Return the video files of an entry in order; a group whose own file was downloaded is one file."""
    if not entry.uid.startswith(GROUP) or known.folders.is_there(video_path(known, entry.uid)):
        return (VideoPart(entry.uid, 0.0, None),)
    uids = known.groups.get(entry.uid)
    if uids is None:
        return Fault(RejectCode.TAKE_UNKNOWN, f"{GROUPS} has no usable row of the group {entry.uid}")
    parts: list[VideoPart] = []
    start_s = 0.0
    for uid in uids:
        duration_s = known.videos[uid].duration_s if uid in known.videos else None
        if duration_s is None and uid != uids[-1]:
            return Fault(RejectCode.TAKE_UNKNOWN, f"ego4d.json has no length of {uid} in {entry.uid}")
        end_s = None if duration_s is None or uid == uids[-1] else start_s + duration_s
        parts.append(VideoPart(uid, start_s, end_s))
        start_s = end_s if end_s is not None else start_s
    return tuple(parts)


def _cut(known: _Known, annotated: Sequence[_Annotated], gathered: ReaderState) -> Counter[str]:
    """Cut rare labels, then make candidates; return the training labels as they were before.

    A corpus without training segments is not cut.
    """
    labels = Counter(normalise(s.category, ()) for a in annotated if a.released == "train" for s in a.kept)
    least = known.config.min_label_train if labels else 0

    def rare(step: Step) -> Fault:
        return Fault(RejectCode.LABEL_RARE, f"{step.category!r} occurs less than {least} times in training"[:200])

    placed = [(part.uid, a) for a in annotated if not isinstance(a.parts, Fault) for part in a.parts]
    shared = claimed_twice((uid, take_id(a.entry.uid, uid), a.released) for uid, a in placed)
    for source in annotated:
        results = ((s.offset, s if labels[normalise(s.category, ())] >= least else rare(s)) for s in source.kept)
        rest = gathered.kept(results, source.home, source.path)
        gathered.counts[f"entries that keep a segment, {source.released}"] += bool(rest)
        _add(known, source, rest, shared, gathered)
    return labels


def _add(
    known: _Known, source: _Annotated, steps: Sequence[Step], shared: dict[str, Fault], gathered: ReaderState
) -> None:
    """Make one candidate of each video file of an entry."""
    if isinstance(source.parts, Fault):
        gathered.released[source.home] = source.released
        return gathered.reject(source.parts, source.home, len(steps), source.path)
    gathered.scenarios.add(source.entry.goal_category)
    placed: dict[str, list[AnnotatedPoint]] = {part.uid: [] for part in source.parts}
    for step in steps:
        middle_s = (step.span_s[0] + step.span_s[1]) / 2
        part = next((p for p in source.parts if p.end_s is None or middle_s < p.end_s), source.parts[-1])
        placed[part.uid].append(_point(source, step, part, gathered))
    for part in source.parts:
        take, points = _take(known, source.entry, part.uid), placed[part.uid]
        gathered.released[take.take_id] = source.released
        gathered.files.add(take.video)
        if take.take_id in shared:
            gathered.reject(shared[take.take_id], take.take_id, len(points), source.path)
        else:
            gathered.add(take, source.released, points, source.path, known.folders)
    return None


def _point(source: _Annotated, step: Step, part: VideoPart, gathered: ReaderState) -> AnnotatedPoint:
    """Return a step in the time of its file, cut where it reaches into a neighbouring one."""
    start_s, end_s = step.span_s
    cut_start_s, cut_end_s = max(start_s, part.start_s), end_s if part.end_s is None else min(end_s, part.end_s)
    if cut_start_s > start_s + ROUNDING_S or cut_end_s < end_s - ROUNDING_S:
        cut = f"[{cut_start_s:.3f}, {cut_end_s:.3f}) s"
        detail = f"[{start_s:.3f}, {end_s:.3f}) s of {source.entry.uid} was cut to {cut}"
        fault = Fault(RejectCode.SEGMENT_STRADDLES, detail)
        gathered.reject(fault, take_id(source.entry.uid, part.uid), 0, source.path, step.offset)
    return span_point((cut_start_s - part.start_s, cut_end_s - part.start_s), step.category, step.offset)


def video_path(known: _Known, uid: str) -> str:
    """Return the path of a video: that of the file that exists, else that of a download."""
    folder = known.config.video
    paths = [*(f"{release}/{folder}/{uid}.mp4" for release in RELEASES), f"{folder}/{uid}.mp4"]
    return known.folders.first(paths) or paths[0]


def _take(known: _Known, entry: Entry, uid: str) -> TakeFiles:
    video = known.videos.get(uid)
    return TakeFiles(
        uid=uid,
        corpus=SIMULATED if known.folders.is_simulated else CORPUS,
        take_id=take_id(entry.uid, uid),
        name=uid,
        scenario=entry.goal_category,
        participant=video.participant if video else None,
        capture=entry.uid,
        video=video_path(known, uid),
    )


def _counts(gathered: ReaderState, labels: Counter[str]) -> tuple[CorpusCount, ...]:
    stated = {"entries that keep a segment, train": 480, "entries that keep a segment, test": 124}
    rows = [count(what, gathered.counts[what], paper, FILTERS) for what, paper in stated.items()]
    for least in CUTS:
        what = f"training labels that occur at least {least} times"
        note = f"ingest.goalstep: relevance, min_label_train = {least}; the paper has {PAPER_LABELS} labels"
        rows.append(count(what, sum(n >= least for n in labels.values()), setting=note))
    return tuple(rows)


GOALSTEP = CorpusSpec(
    name="goalstep",
    title="Ego4D GoalStep",
    ids=CORPUS,
    read=read_goalstep,
    listing=listed_by(read_goalstep),
    published={  # paper, appendix on data sets, which does not state the filter
        TRAIN_SEGMENTS: Published(9137, FILTERS),
        TEST_SEGMENTS: Published(2709, FILTERS),
        LABELS: Published(PAPER_LABELS, FILTERS),
    },
    splits="the annotation files",
    unit="segments",
    download=Download(
        commands=(
            "ego4d --output_directory ROOT --datasets annotations full_scale --benchmarks goalstep --metadata",
            "git clone https://github.com/facebookresearch/ego4d-goalstep ROOT/ego4d-goalstep",
        ),
        access=f"sign the licence at https://ego4d.dev/request/ego4d (two days), {EGO4D_KEYS}",
    ),
    layout="goalstep",
)
