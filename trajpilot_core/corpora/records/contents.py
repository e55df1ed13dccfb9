"""What enters keys of a take's annotations: digests of what they contribute to trainings, and its segment intervals.

A training is repeated if the digest of a take that it was fitted or measured on changes; a new test take changes none
(docs/decisions/trainings.md).
"""

import hashlib
from collections.abc import Mapping
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from schemas.annotation import TakeContent
from schemas.arrow import table_of
from trajpilot_core.engine.stage import Source

SEPARATOR = "\t"
INTERVAL = ("take_id", "segment_id", "start_s", "end_s")
"""Columns of the segments table that decide what is cut out of a take; labels do not."""


def contents_of(takes: pa.Table, segments: pa.Table, windows: pa.Table) -> pa.Table:
    """Return one row per take, sorted by take: the digests of its segments (ids, labels) and of its windows."""
    of_segments = _digests(segments, "segment_id", segments["label_id"])
    steps = pc.binary_join(windows["segment_ids"], SEPARATOR)
    lines = pc.binary_join_element_wise(windows["horizon"].cast(pa.string()), steps, SEPARATOR)
    of_windows = _digests(windows, "window_id", lines)
    nothing = hashlib.sha256().hexdigest()
    return table_of(
        TakeContent,
        (
            TakeContent(take_id=take, segments=of_segments.get(take, nothing), windows=of_windows.get(take, nothing))
            for take in sorted(takes["take_id"].to_pylist())
        ),
    )


def _digests(table: pa.Table, id_column: str, content: pa.ChunkedArray) -> Mapping[str, str]:
    """Return take -> sha256 over its rows in the order of their ids; `content` is the rest of each row as text."""
    order = pc.sort_indices(table, [("take_id", "ascending"), (id_column, "ascending")])
    lines = pc.binary_join_element_wise(table[id_column], content, SEPARATOR).take(order)
    digests: dict[str, hashlib._Hash] = {}
    for take, line in zip(table["take_id"].take(order).to_pylist(), lines.to_pylist(), strict=True):
        digests.setdefault(take, hashlib.sha256()).update(f"{line}\n".encode())
    return {take: digest.hexdigest() for take, digest in digests.items()}


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
