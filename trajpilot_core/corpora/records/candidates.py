"""Shared parts of the readers of annotated segments: from a take's points to its candidate; cut of rare labels."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from schemas.annotation import CorpusCount
from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import (
    AnnotatedPoint,
    Candidate,
    CorpusLister,
    CorpusReader,
    CorpusReading,
    Fault,
    Item,
    Listing,
    Released,
    TakeFiles,
    by_start,
    parted,
)
from trajpilot_core.corpora.formats.folders import WORLD_FILE, Folders
from trajpilot_core.store.corpus_files import Corpus


@dataclass
class ReaderState:
    """The state of a reader while it reads."""

    candidates: list[Candidate] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    released: dict[str, Released] = field(default_factory=dict)
    scenarios: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    """Counts that only the reader knows."""
    files: set[str] = field(default_factory=set)
    """Files that are read, videos among them."""

    def reject(self, fault: Fault, take: str, n_units: int, path: str | None = None, offset: int | None = None) -> None:
        """Add one row."""
        self.rejects.append(fault.reject(take, n_units, path, offset))

    def kept(self, results: Iterable[tuple[int, Item | Fault]], take: str, path: str) -> list[Item]:
        """Return the usable items of (place in the source file, item or fault); a fault is a reject of one unit."""
        good, faults = parted(results)
        for offset, fault in faults:
            self.reject(fault, take, 1, path, offset)
        return list(good)

    def add(
        self, take: TakeFiles, released: Released, points: Sequence[AnnotatedPoint], path: str, folders: Folders
    ) -> None:
        """Add a take with its points in order of the file, or the reject that explains why none can be used."""
        ordered = by_start(points)
        n_turned, overlap = sum(a.start_s > b.start_s for a, b in pairwise(points)), overlap_fault(ordered)
        if not points:
            return self.reject(Fault(RejectCode.UNLABELLED, "no segment of it can be used"), take.take_id, 0, path)
        if take.video and not folders.is_there(take.video):  # empty: the run does without videos
            fault = Fault(RejectCode.VIDEO_MISSING, f"{take.video} is missing")
            return self.reject(fault, take.take_id, len(points), path)
        self.candidates.append(Candidate(take, released, ordered, path))
        if n_turned:
            fault = Fault(RejectCode.TS_REORDERED, f"{n_turned} segments precede one that starts earlier")
            self.reject(fault, take.take_id, 0, path)
        if overlap is not None:
            self.reject(overlap, take.take_id, 0, path)
        return None

    def reading(
        self, folders: Folders, n_in: int, scenarios: Collection[str], counts: tuple[CorpusCount, ...]
    ) -> CorpusReading:
        """Return the reading; the scenarios are those of takes whose metadata can be used."""
        files = {*self.files, *([WORLD_FILE] if folders.is_there(WORLD_FILE) else [])}
        return CorpusReading(
            candidates=tuple(sorted(self.candidates, key=lambda c: c.take.take_id)),
            rejects=tuple(self.rejects),
            n_in=n_in,
            released=self.released,
            scenarios=frozenset(scenarios),
            counts=counts,
            listing=Listing(tuple(sorted(files)), ()),
        )


def listed_by(read: CorpusReader) -> CorpusLister:
    """Return a lister of the files that a reader records while it reads; no video is opened."""

    def listing(corpus: Corpus, config: IngestConfig) -> Listing:
        files = read(corpus, config).listing
        assert files is not None
        return files

    return listing


def overlap_fault(ordered: Sequence[AnnotatedPoint]) -> Fault | None:
    """Return the warning for a take with annotated segments that start before the previous one ends."""
    spans = [(p.details.annotated_start_s, p.details.annotated_end_s) for p in ordered if p.details is not None]
    known = [(start_s, end_s) for start_s, end_s in spans if start_s is not None and end_s is not None]
    n = sum(a[1] > b[0] for a, b in pairwise(known))
    return Fault(RejectCode.SEGMENT_OVERLAP, f"{n} segments start before the previous one ends") if n else None


def drop_rare(reading: CorpusReading, least: int) -> CorpusReading:
    """Return a reading without the labels that have fewer than `least` training segments; the cuts become rejects.

    All training segments that were read count, and their points have label ids; a corpus without any is not cut, nor is
    one where `least` is 0. Windows continue across the segments that are left out.
    """
    trained = Counter(p.label_id for c in reading.candidates if c.released == "train" for p in c.points)
    if not least or not trained:
        return reading
    rejects, candidates = list(reading.rejects), []
    for candidate in reading.candidates:
        kept = tuple(p for p in candidate.points if trained[p.label_id] >= least)
        candidates += [replace(candidate, points=kept)] if kept else []
        for point in (p for p in candidate.points if trained[p.label_id] < least):
            detail = f"label {point.label_id} has {trained[point.label_id]} training segments, wanted are {least}"
            fault = Fault(RejectCode.LABEL_RARE, detail)
            rejects.append(fault.reject(candidate.take.take_id, 1, candidate.source_file, point.offset))
    return replace(reading, candidates=tuple(candidates), rejects=tuple(rejects))


def claimed_twice(claims: Iterable[tuple[str, str, Released]]) -> dict[str, Fault]:
    """Return owner -> why its video cannot be used: one recording under two names, or in two splits.

    A claim is (video, owner, how its split is used).
    """
    owners: dict[str, set[tuple[str, Released]]] = defaultdict(set)
    for video, owner, released in claims:
        owners[video].add((owner, released))
    faults: dict[str, Fault] = {}
    for video, claims_of_video in owners.items():
        if len(claims_of_video) == 1:
            continue
        both = len({released for _, released in claims_of_video}) > 1
        code = RejectCode.NO_SPLIT if both else RejectCode.RECORD_MALFORMED
        where = "in training and in the tested split" if both else f"{len(claims_of_video)} times"
        faults |= {owner: Fault(code, f"the video {video} is annotated {where}") for owner, _ in claims_of_video}
    return faults
