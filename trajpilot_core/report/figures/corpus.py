"""Pictures of the first stages: windows of ingest, head paths of some takes, frames that the encoder saw."""

import io
from collections import Counter

import numpy as np
import pyarrow as pa

from schemas.annotation import DOF, MOTIONS
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Chart, Point, Series, shortened
from trajpilot_core.report.drawing.row_styles import SPARE
from trajpilot_core.report.drawing.sheets import sheet, styled, svg
from trajpilot_core.report.figures.base import Drawn, Figure, NothingToDraw
from trajpilot_core.report.figures.rows import X_LABEL
from trajpilot_core.report.gallery.pictures import Path, Strip, Views, frames_of, integrate
from trajpilot_core.report.health import SPLITS

TAKES, SEGMENTS = 6, 5
"""Takes that are drawn, and segments of each, from its first on."""
LONGEST = 38
CLIPS, FRAMES = 3, 8
"""Clips that are drawn, and frames of each at most."""
SIDE_PX, LONGEST_TITLE = 80, 100
VIEWS_IN, STRIP_IN, DPI = (3.55, 1.75), (7.2, 1.3), 120
"""Width and height of the views of a take and of the frames of a clip, inches, and dots per inch of the latter."""


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
    chart = Chart("Planning windows by horizon", X_LABEL, "windows", lines)
    return Drawn(
        svg([chart], committed.warning(), is_themed=False).encode(),
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
    panels = [_views(shard, start_s, names) for shard in shards]
    return Drawn(
        svg(panels, committed.warning(), 2, VIEWS_IN, is_themed=False).encode(),
        f"{len(panels)} takes, the first {SEGMENTS} segments of each (fewer where it has fewer), joined end to start: "
        "pauses between segments are not drawn. Cross: start, where the head looks forward. Dot: end.",
    )


def _views(shard: pa.Table, start_s: dict[str, float], names: dict[str, str]) -> Views:
    rows = sorted(shard.to_pylist(), key=lambda row: start_s.get(row["segment_id"], 0.0))[:SEGMENTS]
    motions = np.array([row["motions"] for row in rows], dtype=np.float64).reshape(-1, MOTIONS, DOF)
    unit = "m" if {row["scale"] for row in rows} == {"metric"} else "arbitrary scale"
    name = names.get(rows[0]["take_id"], rows[0]["take_id"])
    title = f"{shortened(name, LONGEST)}, {len(rows)} segments"
    return Views(title, (Path("true", "head path", integrate(motions)),), unit)


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
    wanted = {row["take_id"]: row["frame_times_s"][:: -(-len(row["frame_times_s"]) // FRAMES)] for row in middles}
    videos = {take_id: takes[take_id]["video"] for take_id in wanted}
    shots, _ = frames_of(wanted, videos, committed.run.data_root, SIDE_PX, committed.run.workers)
    if not any(shot.uri for shot in shots.values()):
        raise NothingToDraw(next((shot.reason for shot in shots.values()), "no frame could be decoded"))
    panels = []
    for row in middles:
        segment, take = segments[row["segment_id"]], takes[row["take_id"]]
        title = f"{take['name']}, {segment['start_s']:.2f} to {segment['end_s']:.2f} s: {segment['label']}"
        frames = tuple((time_s, shots[row["take_id"], time_s]) for time_s in wanted[row["take_id"]])
        panels.append(Strip(shortened(title, LONGEST_TITLE), frames))
    file, sees = io.BytesIO(), committed.config.features.size_px
    with styled():
        drawing = sheet(panels, committed.warning(), 1, STRIP_IN)
        drawing.savefig(file, format="jpeg", dpi=DPI)  # as SVG their frames would be PNG, which is too large
    return Drawn(
        file.getvalue(),
        f"At most {FRAMES} frames, evenly spaced, of a segment in the middle of {len(panels)} takes, with "
        f"their times in the video. Shown in {SIDE_PX} x {SIDE_PX} pixels; the encoder sees {sees} x {sees}.",
        "image/jpeg",
    )


PICTURES = (
    Figure("corpus", "What the corpus contains", ("ingest",), corpus),
    Figure("head-paths", "Head paths of some takes, from three sides", ("trajectories",), head_paths),
    Figure("clips", "Sample clips: the frames that the encoder sees", ("features",), clips),
)
