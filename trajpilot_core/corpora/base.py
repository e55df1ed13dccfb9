"""The records that every corpus reader returns to ingest."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from schemas.annotation import CorpusCount, Details
from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.store.corpus_files import Corpus

STAGE = "ingest"
Released = Literal["train", "test"]
Item = TypeVar("Item")
RecordKey = TypeVar("RecordKey", bound=Hashable)


class Fault(NamedTuple):
    """Why a record cannot be used; `reject` adds how many units that costs."""

    code: RejectCode
    detail: str

    def reject(self, take: str, n_units: int, source_file: str | None = None, offset: int | None = None) -> Reject:
        """Return the row of the rejects table."""
        return reject(
            STAGE, self.code, take, self.detail, n_units=n_units, source_file=source_file, source_offset=offset
        )


def parted(
    results: Iterable[tuple[RecordKey, Item | Fault]],
) -> tuple[tuple[Item, ...], tuple[tuple[RecordKey, Fault], ...]]:
    """Split (key, item or fault) into the usable items, and key and fault of the others, both in order."""
    listed = list(results)
    good = tuple(item for _, item in listed if not isinstance(item, Fault))
    return good, tuple((key, item) for key, item in listed if isinstance(item, Fault))


def count(what: str, ours: int, paper: int | None = None, setting: str = "") -> CorpusCount:
    """Return a row of the counts: ours, the paper's if stated, and the settings that decide ours."""
    return CorpusCount(what=what, ours=ours, paper=paper, setting=setting)


@dataclass(frozen=True)
class TakeFiles:
    """One take according to the corpus metadata; paths are relative to the corpus root."""

    uid: str
    corpus: str
    take_id: str
    name: str
    scenario: str
    participant: str | None
    capture: str
    """Takes of one capture share the recording; where it is unknown, the participant or the take itself."""
    video: str
    camera: str = ""
    trajectory: str | None = None
    timesync: str | None = None
    calibration: str | None = None
    timesync_start: int | None = None
    timesync_end: int | None = None
    task_ids: tuple[int, ...] = ()
    """Ids of the take's task and of its parent."""
    task_names: tuple[str, ...] = ()
    stated_s: float | None = None
    """Length of the video as the metadata state it, seconds; used where no video is read."""
    stated_fps: float | None = None
    """Frame rate of the video as the metadata state it."""


class AnnotatedPoint(NamedTuple):
    """One accepted annotation: a moment, or a span with its middle; moments sort by time, then text."""

    time_s: float
    text: str
    annotation_uid: str
    annotator: str
    offset: int
    """Index in the source file's list."""
    span_s: tuple[float, float] | None = None
    """Annotated start and end, finite; None for a moment."""
    label: str | None = None
    """Name of the label where the corpus has a closed vocabulary; None: `text` is normalised."""
    label_id: str | None = None
    """Set together with `label`, and never merged with another id."""
    details: Details | None = None
    group: str | None = None
    """Neighbours of different groups are in different runs, so no window crosses from one to the other."""

    @property
    def start_s(self) -> float:
        """Annotated start, or the moment."""
        return self.time_s if self.span_s is None else self.span_s[0]


def span_point(
    span_s: tuple[float, float],
    text: str,
    offset: int,
    *,
    label: str | None = None,
    label_id: str | None = None,
    details: Details | None = None,
) -> AnnotatedPoint:
    """Return the point of an annotated segment; empty spans are rejected later, when segments are cut.

    Args:
        span_s: annotated start and end in seconds, finite.
        label: name in the closed vocabulary, given with its `label_id`; None: the text is normalised.
        details: further facts; annotated start and end are filled in.
    """
    start_s, end_s = span_s
    known = (details or Details()).model_copy(update={"annotated_start_s": start_s, "annotated_end_s": end_s})
    middle_s = start_s + (end_s - start_s) / 2
    return AnnotatedPoint(middle_s, text, "", "", offset, span_s, label, label_id, known)


def by_start(points: Iterable[AnnotatedPoint]) -> tuple[AnnotatedPoint, ...]:
    """Return points with spans in order of start, then end, then text."""
    return tuple(sorted(points, key=lambda p: (p.span_s or (p.time_s, p.time_s), p.text, p.offset)))


@dataclass(frozen=True)
class Candidate:
    """A take with the annotations that passed the filters; its video has not been opened yet.

    Its points are all moments, in order of time, or all spans, in the order of `by_start`.
    """

    take: TakeFiles
    released: Released
    points: tuple[AnnotatedPoint, ...]
    source_file: str


@dataclass(frozen=True)
class CorpusReading:
    """The result of a reader: n_in = points of all candidates + units of the rejects."""

    candidates: tuple[Candidate, ...]
    rejects: tuple[Reject, ...]
    n_in: int
    released: dict[str, Released]
    """Take id -> how its released split is used, for every take of such a split, annotated or not."""
    scenarios: frozenset[str]
    """Scenarios of those takes whose metadata can be used."""
    counts: tuple[CorpusCount, ...] = ()
    """Counts that only the reader knows."""
    wanted: frozenset[Released] = frozenset[Released](("train", "test"))
    """Uses (train, test) that must keep at least one take, or ingest fails."""
    listing: "Listing | None" = None
    """Files that the reader recorded; None: the corpus lists them in another way."""


@dataclass(frozen=True)
class Published:
    """A count that the paper states, and the settings that decide ours."""

    count: int
    setting: str


@dataclass(frozen=True)
class Listing:
    """Files that ingest reads, and those it only checks for; relative to the root, sorted."""

    files: tuple[str, ...]
    present: tuple[str, ...]
    n_takes: int | None = None
    """Number of takes where no videos are listed; None: as many as videos."""


CorpusReader = Callable[[Corpus, IngestConfig], CorpusReading]
CorpusLister = Callable[[Corpus, IngestConfig], Listing]
