"""Pictures of the first stages: windows of ingest, head paths of some takes, frames that the encoder saw."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from schemas.annotation import DOF, MOTIONS
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Chart, Point, Series, element, keys_of, line_chart, shortened
from trajpilot_core.report.drawing.row_styles import SPARE
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, sheet, standalone
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.figures.rows import X_LABEL
from trajpilot_core.report.gallery.pictures import Path, Thumbnail, frames_of, integrate, three_views
from trajpilot_core.report.health import SPLITS

TAKES, SEGMENTS = 6, 5
"""Takes that are drawn, and segments of each, from its first on."""
LONGEST = 38
CLIPS, FRAMES = 3, 8
"""Clips that are drawn, and frames of each at most."""
SIDE_PX, GAP, TITLE, TIME = 80, 6, 30, 16
LONGEST_TITLE = 110


def corpus(committed: Committed) -> Drawn:
    """Draw the windows of an ingested corpus by horizon and split."""
    windows = committed.table("ingest", "windows", ("horizon", "split"))
    if not windows.num_rows:
        raise NothingToDraw("this corpus has no planning windows; the table of this stage has its counts")
    counts = Counter(zip(windows["split"].to_pylist(), windows["horizon"].to_pylist(), strict=True))
    horizons = sorted(set(windows["horizon"].to_pylist()))
    lines = [
        Series(split, style, tuple(Point(float(h), float(counts[split, h])) for h in horizons))
        for split, style in zip(SPLITS, SPARE, strict=False)
    ]
    takes = Counter(committed.table("ingest", "takes", ("split",))["split"].to_pylist())
    title = "Planning windows by horizon"
    chart = Chart(title, line_chart(title, X_LABEL, "windows", lines))
    return Drawn(
        sheet([chart], keys_of(lines), committed.warning()),
        f"Takes: {', '.join(f'{takes[split]:,} {split}' for split in SPLITS)}. The table of this stage counts rejects.",
    )


def head_paths(committed: Committed) -> Drawn:
    """Draw the first segments of some takes, joined end to start."""
    columns = ("segment_id", "take_id", "scale", "motions")
    shards = committed.some_shards("trajectories", "motions", TAKES, columns)
    if not shards:
        raise NothingToDraw("no segment has a trajectory")
    segments = committed.table("ingest", "segments", ("segment_id", "start_s"))
    start_s = dict(zip(segments["segment_id"].to_pylist(), segments["start_s"].to_pylist(), strict=True))
    takes = committed.table("ingest", "takes", ("take_id", "name"))
    names = dict(zip(takes["take_id"].to_pylist(), takes["name"].to_pylist(), strict=True))
    panels = [_panel(shard, start_s, names) for shard in shards]
    return Drawn(
        sheet(panels, (), committed.warning()),
        f"{len(panels)} takes, the first {SEGMENTS} segments of each (fewer where it has fewer), joined end to start: "
        "pauses between segments are not drawn. Cross: start, where the head looks forward. Dot: end.",
    )


def _panel(shard: pa.Table, start_s: dict[str, float], names: dict[str, str]) -> Chart:
    """Draw one take."""
    rows = sorted(shard.to_pylist(), key=lambda row: start_s.get(row["segment_id"], 0.0))[:SEGMENTS]
    motions = np.array([row["motions"] for row in rows], dtype=np.float64).reshape(-1, MOTIONS, DOF)
    unit = "m" if {row["scale"] for row in rows} == {"metric"} else "arbitrary scale"
    name = names.get(rows[0]["take_id"], rows[0]["take_id"])
    title = f"{shortened(name, LONGEST)}, {len(rows)} segments"
    return Chart(title, three_views([Path("true", title, integrate(motions))], unit))


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
    columns = ("segment_id", "start_s", "end_s", "label")
    segments = {row["segment_id"]: row for row in committed.table("ingest", "segments", columns).to_pylist()}
    described = committed.table("ingest", "takes", ("take_id", "name", "video")).to_pylist()
    takes = {row["take_id"]: row for row in described}
    chosen = []
    for row in middles:
        segment, take = segments[row["segment_id"]], takes[row["take_id"]]
        heading = f"{take['name']}, {segment['start_s']:.2f} to {segment['end_s']:.2f} s: {segment['label']}"
        times_s = row["frame_times_s"]
        chosen.append(Clip(row["take_id"], heading, tuple(times_s[:: -(-len(times_s) // FRAMES)])))
    videos = {clip.take_id: takes[clip.take_id]["video"] for clip in chosen}
    wanted = {clip.take_id: clip.times_s for clip in chosen}
    shots, _ = frames_of(wanted, videos, committed.run.data_root, SIDE_PX, committed.run.workers)
    if not any(shot.uri for shot in shots.values()):
        raise NothingToDraw(next((shot.reason for shot in shots.values()), "no frame could be decoded"))
    tall = TITLE + SIDE_PX + TIME + GAP
    parts = [part for index, clip in enumerate(chosen) for part in _clip(clip, shots, index * tall)]
    warning, sees = f"{committed.warning()}. " if committed.warning() else "", committed.config.features.size_px
    return Drawn(
        standalone(760, GAP + len(chosen) * tall, parts),
        f"{warning}At most {FRAMES} frames, evenly spaced, of a segment in the middle of {len(chosen)} takes, with "
        f"their times in the video. Shown in {SIDE_PX} x {SIDE_PX} pixels; the encoder sees {sees} x {sees}.",
    )


def _clip(clip: Clip, shots: Mapping[tuple[str, float], Thumbnail], top: int) -> list[Markup]:
    """Draw one clip: its heading, then frames with their times; a missing frame is replaced by its reason."""
    parts = [element("text", shortened(clip.heading, LONGEST_TITLE), class_="title", x=GAP, y=top + 20)]
    for index, time_s in enumerate(clip.times_s):
        x, y = GAP + index * (SIDE_PX + GAP), top + TITLE
        shot = shots[clip.take_id, time_s]
        if shot.uri:
            frame = element("image", href=shot.uri, x=x, y=y, width=SIDE_PX, height=SIDE_PX)
        else:
            frame = element("text", shot.reason, class_="tick", x=x, y=y + SIDE_PX / 2)
        parts += [frame, element("text", f"{time_s:.2f} s", class_="tick", x=x, y=y + SIDE_PX + 12)]
    return parts


PICTURES = (
    Figure("corpus", "What the corpus contains", ("ingest",), corpus),
    Figure("head-paths", "Head paths of some takes, from three sides", ("trajectories",), head_paths),
    Figure("clips", "Sample clips: the frames that the encoder sees", ("features",), clips),
)
