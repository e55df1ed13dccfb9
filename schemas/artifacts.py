"""The output of a stage: references that travel between stages, and the manifest, which is the truth."""

from typing import Any

from pydantic import Field, JsonValue, SerializerFunctionWrapHandler, model_serializer

from schemas.base import Record


class ArtifactRef(Record):
    """Handle of one committed stage output."""

    stage: str
    uri: str
    fingerprint: str
    """Over content: an upstream re-run that yields the same content leaves everything downstream fresh."""
    rows: int


class FileEntry(Record):
    """One immutable, content-named file."""

    name: str
    sha256: str
    bytes: int
    rows: int
    key: str = ""
    """Which model it holds, e.g. `final/s0/traj`; empty in any other file, and not written down there."""

    @model_serializer(mode="wrap")
    def _without_an_empty_key(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialise(self)
        if not self.key:
            del content["key"]
        return content


class Entry(Record):
    """One named output of a stage (a table, models, a document) and the files that hold it."""

    kind: str
    """`table`, `models` or `document`."""
    files: tuple[FileEntry, ...]
    """Of models: what holds for all of them, then one file per model, sorted by key."""
    fingerprint: str
    rows: int


class ShardRecord(Record):
    """Completion marker of one shard: of a take's share of a stage, or of one training."""

    stage: str
    key: str
    shard: str
    entry: Entry
    """Its part of the first entry that the stage writes."""
    rejects: Entry
    n_in: int
    n_out: int
    rejected: dict[str, int]
    further: dict[str, Entry] = Field(default_factory=dict)
    """Its parts of further entries; not written down where there are none."""

    @model_serializer(mode="wrap")
    def _without_further(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = serialise(self)
        if not self.further:
            del content["further"]
        return content


class ShardGroup(Record):
    """Shards of one stage that one run computes: what is requested, and the keys that must result."""

    stage: str
    version: int
    """Version of the stage where the run began: another version writes other numbers."""
    key: str
    """Key of the whole stage; notes below the root, stored under this key, list the inputs of every shard."""
    number: int
    """From 1."""
    of: int
    unit: str
    """What a shard is: `take` or `training`."""
    shards: dict[str, str]
    """Name of a shard -> its key."""
    video_s: float | None
    """Seconds of video that the segments of its takes cover; None: its shards are no takes."""

    def label(self) -> str:
        """Name of the group for people to read."""
        return f"{self.stage} group {self.number} of {self.of} · {self.amount()}"

    def amount(self) -> str:
        """Amount of work, in words."""
        if self.video_s is None:
            return ", ".join(self.shards)
        shards = f"1 {self.unit}" if len(self.shards) == 1 else f"{len(self.shards)} {self.unit}s"
        video = f"{self.video_s / 60:.0f} min" if self.video_s >= 600 else f"{self.video_s:.0f} s"
        return f"{shards}, {video} of video"

    def weight(self) -> float:
        """Amount of work as a number: seconds of video, or shards."""
        return float(len(self.shards)) if self.video_s is None else self.video_s


class Manifest(Record):
    """Written last; a folder without one does not exist. It holds nothing that depends on the single run."""

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
    """Side file: what depends on when and where the stage ran, and what it took there."""

    reused: int
    computed: int
    removed: int
    rejected: int
    started: str
    seconds: float
    host: str
    rows: int
    """Of all entries that the stage read."""
    memory_bytes: int | None
    """Peak of what its processes held that is no file's; None: the system does not report it, or other processes
    computed shards."""
    gpu_bytes: int
    """Peak of what torch allocated on the GPU in the process of the stage."""
    disk_bytes: int
    """Of what was computed, and the peak of its scratch."""


class UnitSources(Record):
    """Inputs from outside the store of one unit of a stage: of a take, or of the whole stage."""

    files: dict[str, str]
    """Path -> digest."""
    facts: dict[str, str]
    """Name of a fact -> fingerprint of its value."""


class SourceNotes(Record):
    """Side file: the inputs of every unit, so that `status` can name what changed. Nothing is decided by it."""

    units: dict[str, UnitSources]
    """By shard; the single unit of a stage that is not sharded is called ""."""
