"""A group of takes of one stage, computed somewhere else than the run that it belongs to."""

from schemas.base import Record


class TakeGroup(Record):
    """Takes of one sharded stage that one run computes: what it is asked for, and the keys that must come out."""

    stage: str
    version: int
    """Of the stage where the run began: another one writes other numbers."""
    key: str
    """Of the whole stage; notes below the root say under it what every take was made from."""
    number: int
    """From 1."""
    of: int
    takes: dict[str, str]
    """Take -> key of its shard."""
    video_s: float
    """Seconds of video that the takes' segments cover."""

    def label(self) -> str:
        """Name the group as people read it."""
        return f"{self.stage} group {self.number} of {self.of} · {self.amount()}"

    def amount(self) -> str:
        """Say how much work it is."""
        takes = "1 take" if len(self.takes) == 1 else f"{len(self.takes)} takes"
        video = f"{self.video_s / 60:.0f} min" if self.video_s >= 600 else f"{self.video_s:.0f} s"
        return f"{takes}, {video} of video"
