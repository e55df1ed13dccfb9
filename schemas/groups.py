"""A group of takes of one stage that is computed elsewhere than the run to which it belongs."""

from schemas.base import Record


class TakeGroup(Record):
    """Takes of one sharded stage that one run computes: what is requested, and the keys that must result."""

    stage: str
    version: int
    """Version of the stage where the run began: another version writes other numbers."""
    key: str
    """Key of the whole stage; notes below the root, stored under this key, list the inputs of every take."""
    number: int
    """From 1."""
    of: int
    takes: dict[str, str]
    """Take -> key of its shard."""
    video_s: float
    """Seconds of video that the takes' segments cover."""

    def label(self) -> str:
        """Name of the group for people to read."""
        return f"{self.stage} group {self.number} of {self.of} · {self.amount()}"

    def amount(self) -> str:
        """Amount of work, in words."""
        takes = "1 take" if len(self.takes) == 1 else f"{len(self.takes)} takes"
        video = f"{self.video_s / 60:.0f} min" if self.video_s >= 600 else f"{self.video_s:.0f} s"
        return f"{takes}, {video} of video"
