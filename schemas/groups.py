"""A group of shards of one stage that is computed elsewhere than the run to which it belongs."""

from schemas.base import Record


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
