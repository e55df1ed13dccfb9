"""What the readers of annotated segments share: from a take's points to its candidate, and the cut of rare labels."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from schemas.rejects import Reject, RejectCode
from trajpilot_core.readers.folders import Folders
from trajpilot_core.readers.reading import Candidate, Fault, Point, Released, TakeFiles, by_start

OVERLAPS = "neighbours that overlap"


@dataclass
class Gathered:
    """What a reader has found so far."""

    candidates: list[Candidate] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    released: dict[str, Released] = field(default_factory=dict)
    scenarios: set[str] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    """What the reader alone can count."""

    def reject(self, fault: Fault, take: str, n_units: int, path: str | None = None, offset: int | None = None) -> None:
        """Add one row."""
        self.rejects.append(fault.reject(take, n_units, path, offset))

    def add(self, take: TakeFiles, released: Released, points: Sequence[Point], path: str, folders: Folders) -> None:
        """Add a take with its points in order of the file, or say why none of them can be used."""
        ordered = by_start(points)
        n_turned, n_overlaps = sum(_start(a) > _start(b) for a, b in pairwise(points)), overlaps(ordered)
        self.counts[OVERLAPS] += n_overlaps
        if not points:
            return self.reject(Fault(RejectCode.UNLABELLED, "no segment of it can be used"), take.take_id, 0, path)
        if not folders.is_there(take.video):
            fault = Fault(RejectCode.VIDEO_MISSING, f"{take.video} is not there")
            return self.reject(fault, take.take_id, len(points), path)
        self.candidates.append(Candidate(take, released, ordered, path))
        if n_turned:
            fault = Fault(RejectCode.TS_REORDERED, f"{n_turned} segments stood before one that starts earlier")
            self.reject(fault, take.take_id, 0, path)
        if n_overlaps:
            fault = Fault(RejectCode.SEGMENT_OVERLAP, f"{n_overlaps} segments start before the one in front ends")
            self.reject(fault, take.take_id, 0, path)
        return None


def overlaps(ordered: Sequence[Point]) -> int:
    """Return how many annotated segments start before the one in front of them ends."""
    spans = [(p.details.annotated_start_s, p.details.annotated_end_s) for p in ordered if p.details is not None]
    known = [(start_s, end_s) for start_s, end_s in spans if start_s is not None and end_s is not None]
    return sum(a[1] > b[0] for a, b in pairwise(known))


def _start(point: Point) -> float:
    return point.time_s if point.span_s is None else point.span_s[0]


def kept_labels(labels: Iterable[str], least: int) -> frozenset[str] | None:
    """Return the training labels that stand there at least so often; None where nothing is cut.

    Args:
        labels: of every training segment.
        least: 0 for no cut. A corpus without training segments is not cut: there is nothing to count.
    """
    times = Counter(labels)
    return frozenset(label for label, n in times.items() if n >= least) if least > 0 and times else None


def claimed_twice(claims: Iterable[tuple[str, str, Released]]) -> dict[str, Fault]:
    """Return owner -> why its video cannot be used: one recording under two names, or in two splits.

    Args:
        claims: (video, owner, how its split is used).
    """
    owners: dict[str, set[tuple[str, Released]]] = defaultdict(set)
    for video, owner, released in claims:
        owners[video].add((owner, released))
    faults: dict[str, Fault] = {}
    for video, found in owners.items():
        if len(found) == 1:
            continue
        both = len({released for _, released in found}) > 1
        code = RejectCode.NO_SPLIT if both else RejectCode.RECORD_MALFORMED
        said = "in training and in the tested split" if both else f"{len(found)} times"
        faults |= {owner: Fault(code, f"the video {video} is annotated {said}") for owner, _ in found}
    return faults
