"""What a stage will take, judged by what it took here before: time and disk."""

from dataclasses import dataclass

from schemas.artifacts import Manifest
from trajpilot_core.store.files import Folder
from trajpilot_core.store.history import occasions_of
from trajpilot_core.store.manifest import files_of
from trajpilot_core.store.packs import pack_label


@dataclass(frozen=True)
class Estimate:
    """Time and disk; None where the stage never ran below this root, so that nobody knows."""

    seconds: float | None = None
    bytes: int | None = None

    def plus(self, other: "Estimate") -> "Estimate":
        """Add up what is known of two stages."""
        seconds = [value for value in (self.seconds, other.seconds) if value is not None]
        sizes = [value for value in (self.bytes, other.bytes) if value is not None]
        return Estimate(sum(seconds) if seconds else None, sum(sizes) if sizes else None)


NOTHING, UNKNOWN = Estimate(0.0, 0), Estimate()


def estimate(folder: Folder, stage: str, current: Manifest | None, compute: int | None, removed: int) -> Estimate:
    """Judge what computing `compute` units will take.

    Time: seconds per unit of the run here that computed most units. Disk: bytes per unit of the output that counts; the
    pack of a sharded table is written anew. Nothing is taken off for what is removed: files stay until `gc`.

    Args:
        folder: the root.
        stage: which.
        current: its output that counts.
        compute: units to compute, None where nobody knows.
        removed: units that go.
    """
    if compute == 0 and not removed:
        return NOTHING
    if compute is None:
        return UNKNOWN
    return Estimate(_seconds(folder, stage, compute), _bytes(folder, current, compute))


def _seconds(folder: Folder, stage: str, compute: int) -> float | None:
    ran = [occasion for _, occasion in occasions_of(folder, stage) if occasion.computed]
    if not ran:
        return None
    longest = max(ran, key=lambda occasion: occasion.computed)
    return compute * longest.seconds / longest.computed


def _bytes(folder: Folder, current: Manifest | None, compute: int) -> int | None:
    if current is None:
        return None
    whole = sum(file.bytes for file in files_of(current))
    units = sum(name.startswith("shard:") for name in current.inputs)
    if not units:
        return whole * compute
    return round(whole * compute / units) + (whole if _is_packed(folder, current) else 0)


def _is_packed(folder: Folder, current: Manifest) -> bool:
    labels = (pack_label(current.stage, entry) for entry in current.entries.values())
    return any(folder.size(label) is not None for label in labels)
