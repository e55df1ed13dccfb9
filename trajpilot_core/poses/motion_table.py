"""Rows of the motions table, and the check that motions of different origin are not mixed."""

from collections import Counter
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from schemas.observation import DOF, MOTIONS, HeadMotions, motions_schema
from schemas.poses import PoseSourceName
from schemas.trajectories import TrajectoryConfig
from trajpilot_core.arrays import Array
from trajpilot_core.errors import MixedSourcesError

ORIGIN = ("source", "frame", "scale")
"""Columns of the motions that must agree; `frame` names the axes too."""


class Rows(NamedTuple):
    """The N usable segments of a take."""

    ids: list[str]
    motions: Array
    """(N, 16, 6)."""
    coverage: Array
    quality: Array
    gap_s: Array
    """(N,) each."""


def motions_table(
    take_id: str, rows: Rows, source: PoseSourceName, scale: Literal["metric", "arbitrary"], cfg: TrajectoryConfig
) -> pa.Table:
    """Build the motions of one take, all from one source."""
    n = len(rows.ids)
    flat = pa.array(rows.motions.astype(np.float32).reshape(-1), type=pa.float32())
    columns = {
        "segment_id": rows.ids,
        "take_id": [take_id] * n,
        "source": [source] * n,
        "frame": [cfg.frame] * n,
        "scale": [scale] * n,
        "coverage": rows.coverage,
        "quality": rows.quality,
        "max_gap_s": rows.gap_s,
        "motions": pa.FixedSizeListArray.from_arrays(flat, MOTIONS * DOF),
    }
    assert set(columns) == {*HeadMotions.model_fields, "motions"}
    return pa.table(columns, schema=motions_schema(cfg.sources()))


def origins(motions: pa.Table) -> list[tuple[str, str, str]]:
    """Return the different (source, frame, scale) in a table of motions, sorted."""
    return sorted(_counted(motions))


def _counted(motions: pa.Table) -> Counter[tuple[str, str, str]]:
    """Return (source, frame, scale) -> its number of segments."""
    return Counter(zip(*(motions[name].to_pylist() for name in ORIGIN), strict=True))


def check_one_source(*tables: pa.Table) -> None:
    """Check that motions used together are of one origin, or of sources that were configured together.

    The metadata of a table list the sources of its settings (`TrajectoryConfig.fallback`). The frame must always be the
    same: motions in different axes are never comparable.

    Args:
        tables: motions; those of a training set, or those of a bank and those of its queries.

    Raises:
        MixedSourcesError: with the origins and the number of segments of each.
    """
    counts = sum((_counted(table) for table in tables), Counter[tuple[str, str, str]]())
    if len(counts) < 2:
        return
    frames = {frame for _, frame, _ in counts}
    requested = [set((table.schema.metadata or {}).get(b"mixed", b"").decode().split(",")) for table in tables]
    together = set.intersection(*requested)
    if len(frames) == 1 and {source for source, _, _ in counts} <= together:
        return
    counted = "; ".join(f"{n:,} segments from {', '.join(origin)}" for origin, n in sorted(counts.items()))
    advice = (
        "use one frame for all (--set trajectories.frame)"
        if len(frames) > 1
        else "use one source for all (--set trajectories.source), or allow both with --set trajectories.fallback"
    )
    raise MixedSourcesError(f"motions of different origin (source, frame, scale) would be mixed: {counted}; {advice}")
