"""Rows of the motions table."""

from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from schemas.observation import DOF, MOTIONS, HeadMotions, motions_schema
from schemas.poses import PoseSourceName
from schemas.trajectories import TrajectoryConfig
from trajpilot_core.arrays import Array


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
