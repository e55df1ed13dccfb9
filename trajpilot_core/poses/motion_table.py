"""Rows of the motions table, and the guard against motions of different origin wherever tables are joined."""

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
    """What is known of the N segments of a take that passed."""

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
    """Assert that motions which are used together are of one origin, or of sources that were asked for together.

    A table says in its metadata which sources its settings asked for (`TrajectoryConfig.fallback`). The frame must be
    one in any case: motions in different axes are never comparable.

    Args:
        tables: motions; those of a training set, or those of a bank and those of its queries.

    Raises:
        MixedSourcesError: names what was found, with the number of segments of each.
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
        "bring all of them into one frame (--set trajectories.frame)"
        if len(frames) > 1
        else "read all from one source (--set trajectories.source), or ask for both with --set trajectories.fallback"
    )
    raise MixedSourcesError(f"motions of different origin (source, frame, scale) would be mixed: {counted}; {advice}")
