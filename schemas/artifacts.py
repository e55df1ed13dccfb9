"""Outputs of stages: references that are passed between stages, manifests, and groups of shards."""

from pydantic import Field, JsonValue

from schemas.base import Record


class ArtifactRef(Record):
    """Handle of one committed stage output."""

    stage: str
    uri: str
    fingerprint: str
    """Digest of the content: if an upstream re-run yields the same content, everything downstream stays fresh."""
    rows: int


class FileEntry(Record):
    """One immutable, content-named file."""

    name: str
    sha256: str
    bytes: int
    rows: int
    key: str = ""
    """Model in the file, e.g. `final/s0/traj`; empty for other files."""


class Entry(Record):
    """One named output of a stage (a table, models, a document) and the files that hold it."""

    kind: str
    """`table`, `models` or `document`."""
    files: tuple[FileEntry, ...]
    """For models: first a file of what they share, then one file per model, sorted by key."""
    fingerprint: str
    rows: int


class ShardRecord(Record):
    """Completion marker of one shard: the part of a stage for one take, or one training."""

    stage: str
    key: str
    shard: str
    entry: Entry
    """Part of the stage's first entry."""
    rejects: Entry
    n_in: int
    n_out: int
    rejected: dict[str, int]
    further: dict[str, Entry] = Field(default_factory=dict)
    """Parts of the stage's other entries."""


class ShardGroup(Record):
    """Shards of one stage that another run computes: what is requested, and the keys that must result."""

    stage: str
    version: int
    """Version of the stage in the run that shares it out: another version writes other numbers."""
    number: int
    """From 1."""
    of: int
    unit: str
    """Kind of shard: `take` or `training`."""
    shards: dict[str, str]
    """Name of a shard -> its key."""
    video_s: float | None
    """Seconds of video covered by the segments of its takes; None if its shards are not takes."""

    def label(self) -> str:
        """Return a readable name of the group."""
        return f"{self.stage} group {self.number} of {self.of} · {self.amount()}"

    def amount(self) -> str:
        """Return the amount of work in words."""
        if self.video_s is None:
            return ", ".join(self.shards)
        shards = f"1 {self.unit}" if len(self.shards) == 1 else f"{len(self.shards)} {self.unit}s"
        video = f"{self.video_s / 60:.0f} min" if self.video_s >= 600 else f"{self.video_s:.0f} s"
        return f"{shards}, {video} of video"

    def weight(self) -> float:
        """Return the amount of work as a number: seconds of video, or shards."""
        return float(len(self.shards)) if self.video_s is None else self.video_s


class Manifest(Record):
    """Description of an output, whatever run made it. It is written last: a folder without one does not count."""

    format: int
    stage: str
    version: int
    key: str
    config: dict[str, JsonValue]
    inputs: dict[str, str]
    """Entry name or source -> fingerprint."""
    entries: dict[str, Entry]
    n_in: int
    n_out: int
    rejected: dict[str, int]
    """Reject code -> units lost or affected."""
    libraries: dict[str, str]


class RunRecord(Record):
    """Side file: when and where the stage ran, and the resources it took."""

    reused: int
    computed: int
    removed: int
    rejected: int
    started: str
    seconds: float
    host: str
    rows: int
    """Rows of all entries that the stage read."""
    memory_bytes: int | None
    """Peak of anonymous memory of its processes; None if it is not reported, or others computed shards."""
    gpu_bytes: int
    """Peak of torch's GPU allocations in the process of the stage."""
    disk_bytes: int
    """Bytes of what was computed plus the peak of its scratch."""


class SourceNotes(Record):
    """Side file: the input files of every unit; `predict` recognises the video of a take by them."""

    units: dict[str, dict[str, str]]
    """Shard -> path -> digest; the single unit of an unsharded stage is called ""."""
