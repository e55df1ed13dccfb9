"""Rows of the tables of head motion and appearance of segments, and of the text bank."""

from typing import Literal

import pyarrow as pa

from schemas.arrow import arrow_schema
from schemas.base import Record

KNOTS, MOTIONS, DOF = 17, 16, 6
"""17 poses at equal times over a segment give 16 relative motions of 6 numbers (paper, appendix on preprocessing)."""


class HeadMotions(Record):
    """Head motion of one segment; the column `motions` holds 16 x 6 float32, row-major.

    Motion k is T_k^-1 T_k+1 in the earlier body frame: dx, dy, dz in metres, then the rotation vector in radians.
    """

    segment_id: str
    take_id: str
    source: Literal["aria", "pi3", "odometry"]
    frame: Literal["camera", "device", "camera_upright"]
    """Body frame and its axes: raw Aria RGB camera (x down, y left, z ahead), device, upright (x right, y down)."""
    scale: Literal["metric", "arbitrary"]
    coverage: float
    """Share of the segment that the poses cover, 0 to 1."""
    quality: float
    """Lowest tracking quality among the poses used, 0 to 1; what it means for video: docs/decisions/poses.md."""
    max_gap_s: float
    """Longest gap between neighbouring poses inside the segment, as far as it was examined."""


class Feature(Record):
    """Appearance of one segment; the column `vector` holds float16, D or 8 x D numbers."""

    segment_id: str
    take_id: str
    encoder: str
    """Digest of weights and preprocessing."""
    frame_times_s: tuple[float, ...]
    """Presentation times of the 16 frames that were decoded."""


class ReleasedFeature(Feature):
    """Appearance of one segment from released features; `frame_times_s` holds start and end of each row averaged."""

    overhang_s: float
    """If no row lies inside the segment: seconds by which the one row used extends beyond it; else 0."""


class TextVector(Record):
    """One label of the text bank; the column `vector` holds float32 of unit norm."""

    label_id: str
    label: str
    encoder: str


class StateDescription(Record):
    """One sentence about the state before or after a label; the column `vector` holds float32 of unit norm."""

    label_id: str
    place: int
    """0 to 2: before; 3 to 5: after."""
    text: str
    provider: str
    """`template`, or the digest of the source file."""


def motions_schema(mixed: tuple[str, ...] = ()) -> pa.Schema:
    """Return the Arrow schema of the motions table; `mixed` lists the sources if it may contain several."""
    schema = arrow_schema(HeadMotions, motions=pa.list_(pa.float32(), MOTIONS * DOF))
    return schema.with_metadata({"mixed": ",".join(mixed)}) if len(mixed) > 1 else schema


def features_schema(width: int, tokens: int = 1) -> pa.Schema:
    """Return the Arrow schema of the features table for vectors of `width` numbers, `tokens` equal parts each
    (metadata)."""
    schema = arrow_schema(Feature, vector=pa.list_(pa.float16(), width))
    return schema if tokens == 1 else schema.with_metadata({"tokens": str(tokens)})


def released_features_schema(width: int, tokens: int = 1) -> pa.Schema:
    """Return that for released features: vectors of `width` numbers, `tokens` equal parts each (metadata)."""
    schema = arrow_schema(ReleasedFeature, vector=pa.list_(pa.float16(), width))
    return schema if tokens == 1 else schema.with_metadata({"tokens": str(tokens)})


def descriptions_schema(width: int) -> pa.Schema:
    """Return the Arrow schema of the descriptions for vectors of `width` numbers."""
    return arrow_schema(StateDescription, vector=pa.list_(pa.float32(), width))


def text_bank_schema(width: int) -> pa.Schema:
    """Return the Arrow schema of the text bank for vectors of `width` numbers."""
    return arrow_schema(TextVector, vector=pa.list_(pa.float32(), width))
