"""What every corpus reader hands to ingest, whatever the corpus looks like on disk."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.readers.corpus import Corpus

STAGE = "ingest"
Released = Literal["train", "test"]


class Fault(NamedTuple):
    """Why a record cannot be used, before it is known how many units that costs."""

    code: RejectCode
    detail: str

    def reject(self, take: str, n_units: int, source_file: str | None = None, offset: int | None = None) -> Reject:
        """Return the row of the rejects table."""
        return reject(
            STAGE, self.code, take, self.detail, n_units=n_units, source_file=source_file, source_offset=offset
        )


@dataclass(frozen=True)
class TakeFiles:
    """One take as the corpus metadata gives it; paths are relative to the corpus root."""

    uid: str
    corpus: str
    take_id: str
    name: str
    scenario: str
    participant: str | None
    capture: str
    """Takes of one capture share the recording; where it is unknown, the participant or the take itself."""
    camera: str
    video: str
    trajectory: str | None
    timesync: str | None
    calibration: str | None
    timesync_start: int | None
    timesync_end: int | None

    def optional(self) -> list[str]:
        """Paths whose presence decides something, while ingest does not read them."""
        return [path for path in (self.trajectory, self.timesync, self.calibration) if path]


class Point(NamedTuple):
    """One accepted description; points sort by time, then text."""

    time_s: float
    text: str
    annotation_uid: str
    annotator: str
    offset: int
    """Place in the source file's list."""


@dataclass(frozen=True)
class Candidate:
    """A take with the descriptions that passed the filters, in order of time; its video has not been opened yet."""

    take: TakeFiles
    released: Released
    points: tuple[Point, ...]
    source_file: str


@dataclass(frozen=True)
class Reading:
    """What a reader found: n_in = points of all candidates + units of the rejects."""

    candidates: tuple[Candidate, ...]
    rejects: tuple[Reject, ...]
    n_in: int
    released: dict[str, Released]
    """Take id -> how its released split is used, for every take of such a split, annotated or not."""
    scenarios: frozenset[str]
    """Scenarios of those takes whose metadata can be used."""


@dataclass(frozen=True)
class Listing:
    """Files that ingest reads, and those whose presence alone matters; all relative to the root, sorted."""

    files: tuple[str, ...]
    present: tuple[str, ...]
    leftovers: tuple[str, ...]


@dataclass(frozen=True)
class Reader:
    """The two questions that ingest asks about a corpus."""

    read: Callable[[Corpus, IngestConfig], Reading]
    listing: Callable[[Corpus, IngestConfig], Listing]
