"""The segment intervals of every take, as the sharded stages put them into their keys."""

from typing import Any, cast

import pyarrow as pa
from pydantic import JsonValue

from trajpilot_core.engine.stage import Source

INTERVAL = ("take_id", "segment_id", "start_s", "end_s")
"""Columns of the segments table that decide what is cut out of a take; labels do not."""


def intervals_by_take(segments: pa.Table) -> dict[str, list[JsonValue]]:
    """Return take -> [segment id, start, end] of its segments, in order of their ids."""
    intervals: dict[str, list[JsonValue]] = {}
    ordered = segments.sort_by([("take_id", "ascending"), ("segment_id", "ascending")])
    takes, *columns = (ordered[name].to_numpy().tolist() for name in INTERVAL)  # to_pylist takes four times as long
    for take, segment, start_s, end_s in zip(takes, *columns, strict=True):
        intervals.setdefault(take, []).append([segment, start_s, end_s])
    return intervals


def covered_s(source: Source) -> float:
    """Return the seconds of video that the segments of a take cover: what decoding and encoding cost follows.

    The rest of a take is skipped, whatever its length; overlapping segments count as often as they are read.
    """
    segments = cast(list[Any], source.facts["segments"])
    return float(sum(end_s - start_s for _, start_s, end_s in segments))
