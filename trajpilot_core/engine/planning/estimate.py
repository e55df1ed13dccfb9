"""What a stage will need, judged by what it needed here before: time and disk."""

from dataclasses import dataclass

from schemas.artifacts import Manifest
from trajpilot_core.store.files import Folder
from trajpilot_core.store.history import run_records_of
from trajpilot_core.store.manifest import files_of
from trajpilot_core.store.packs import pack_label


@dataclass(frozen=True)
class CostEstimate:
    """Time and disk; None where the stage never ran below this root, so that it is unknown."""

    seconds: float | None = None
    bytes: int | None = None

    def plus(self, other: "CostEstimate") -> "CostEstimate":
        """Add up what is known of two stages."""
        seconds = [value for value in (self.seconds, other.seconds) if value is not None]
        sizes = [value for value in (self.bytes, other.bytes) if value is not None]
        return CostEstimate(sum(seconds) if seconds else None, sum(sizes) if sizes else None)


NOTHING, UNKNOWN = CostEstimate(0.0, 0), CostEstimate()


def estimate(folder: Folder, stage: str, current: Manifest | None, compute: int | None, removed: int) -> CostEstimate:
    """Judge what computing `compute` units will take.

    Time: seconds per unit of the run here that computed most units. Disk: bytes per unit of the output that counts; the
    pack of a sharded table is rewritten. Nothing is subtracted for what is removed: files stay until `gc`.

    Args:
        folder: the root.
        stage: which.
        current: its output that counts.
        compute: units to compute, None where unknown.
        removed: units that go.
    """
    if compute == 0 and not removed:
        return NOTHING
    if compute is None:
        return UNKNOWN
    return CostEstimate(_seconds(folder, stage, compute), _bytes(folder, current, compute))


def _seconds(folder: Folder, stage: str, compute: int) -> float | None:
    ran = [run_record for _, run_record in run_records_of(folder, stage) if run_record.computed]
    if not ran:
        return None
    longest = max(ran, key=lambda run_record: run_record.computed)
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
