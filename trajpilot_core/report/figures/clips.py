"""Sample clips: the frames that the encoder saw of some segments, with their times and the segment's label.

Frames of videos are personal data: `report.frames` switches them off here as in the report.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from markupsafe import Markup

from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import element, shortened
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, standalone
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.gallery.pictures import Thumbnail, frames_of

SIZES_PX = (96, 80, 64, 48, 32)
"""Sides of a frame, tried in turn until the picture is small enough."""
CLIPS, PER_LINE, GAP, TITLE, TIME = 3, 8, 6, 30, 16
LONGEST = 110


class Clip(NamedTuple):
    """One segment with the times of its frames."""

    take_id: str
    heading: str
    times_s: tuple[float, ...]


def clips(committed: Committed) -> Drawn:
    """Draw the frames of one segment of some takes."""
    if not committed.config.report.frames:
        raise NothingToDraw("report.frames is off: frames of videos are personal data, so none is shown")
    if "://" in committed.run.data_root:
        raise NothingToDraw("frames are shown for a corpus on this machine only")
    shards = committed.some_shards("features", "features", CLIPS, ("segment_id", "take_id", "frame_times_s"))
    if not shards:
        raise NothingToDraw("no segment was encoded")
    middles = [shard.slice(shard.num_rows // 2, 1).to_pylist()[0] for shard in shards]
    chosen, videos = _described(committed, middles)
    return _at(0, committed, chosen, videos)


def _described(committed: Committed, rows: Sequence[Mapping[str, Any]]) -> tuple[list[Clip], dict[str, str]]:
    """Return the clips with their headings, and take id -> video."""
    columns = ("segment_id", "start_s", "end_s", "label")
    segments = {row["segment_id"]: row for row in committed.table("ingest", "segments", columns).to_pylist()}
    takes = {
        row["take_id"]: row for row in committed.table("ingest", "takes", ("take_id", "name", "video")).to_pylist()
    }
    made = []
    for row in rows:
        segment, take = segments[row["segment_id"]], takes[row["take_id"]]
        heading = f"{take['name']}, {segment['start_s']:.2f} to {segment['end_s']:.2f} s: {segment['label']}"
        made.append(Clip(row["take_id"], heading, tuple(row["frame_times_s"])))
    return made, {row["take_id"]: takes[row["take_id"]]["video"] for row in rows}


def _at(size: int, committed: Committed, chosen: Sequence[Clip], videos: Mapping[str, str]) -> Drawn:
    """Draw the clips at one of the sizes; frames are decoded in child processes, as for the report."""
    side = SIZES_PX[size]
    times_s = {clip.take_id: clip.times_s for clip in chosen}
    shots, _ = frames_of(times_s, videos, committed.run.data_root, side, committed.run.workers)
    if not any(shot.uri for shot in shots.values()):
        raise NothingToDraw(next((shot.reason for shot in shots.values()), "no frame could be decoded"))
    smaller = partial(_at, size + 1, committed, chosen, videos) if size + 1 < len(SIZES_PX) else None
    n = len(chosen[0].times_s)
    warning, sees = f"{committed.warning()}. " if committed.warning() else "", committed.config.features.size_px
    return Drawn(
        _sheet(chosen, shots, side),
        f"{warning}The {n} frames of a segment in the middle of {len(chosen)} takes, with their times in the video. "
        f"Shown in {side} x {side} pixels; the encoder sees {sees} x {sees}.",
        smaller=smaller,
    )


def _sheet(chosen: Sequence[Clip], shots: Mapping[tuple[str, float], Thumbnail], side: int) -> bytes:
    """Lay the clips out one below the other."""
    n = max(len(clip.times_s) for clip in chosen)
    columns = min(PER_LINE, n)
    lines = -(-n // columns)
    tall = TITLE + lines * (side + TIME + GAP)
    width, height = max(760, GAP + columns * (side + GAP)), GAP + len(chosen) * tall
    parts = [part for index, clip in enumerate(chosen) for part in _clip(clip, shots, side, columns, index * tall)]
    return standalone(width, height, parts)


def _clip(clip: Clip, shots: Mapping[tuple[str, float], Thumbnail], side: int, columns: int, top: int) -> list[Markup]:
    """Draw one clip: its heading, then frames with their times; a missing frame is replaced by its reason."""
    parts = [element("text", shortened(clip.heading, LONGEST), class_="title", x=GAP, y=top + 20)]
    for index, time_s in enumerate(clip.times_s):
        x = GAP + index % columns * (side + GAP)
        y = top + TITLE + index // columns * (side + TIME + GAP)
        shot = shots[clip.take_id, time_s]
        if shot.uri:
            frame = element("image", href=shot.uri, x=x, y=y, width=side, height=side)
        else:
            frame = element("text", shot.reason, class_="tick", x=x, y=y + side / 2)
        time = element("text", f"{time_s:.2f} s", class_="tick", x=x, y=y + side + 12)
        parts += [frame, time]
    return parts


FIGURE = Figure("clips", "Sample clips: the frames that the encoder sees", stages=("features",), draw=clips)
