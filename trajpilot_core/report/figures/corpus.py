"""Pictures of the first stages: counts of ingest, head paths of some takes, frames that the encoder saw."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from markupsafe import Markup

from schemas.annotation import DOF, MOTIONS
from schemas.rejects import RejectCode
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Bar, Chart, Key, bar_chart, element, legend_mark, shortened
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, sheet, standalone
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.gallery.pictures import Path, Thumbnail, frames_of, integrate, three_views
from trajpilot_core.report.health import SPLITS

TAKES, SEGMENTS = 6, 5
"""Takes that are drawn, and segments of each, from its first on."""
LONGEST = 38
SIZES_PX = (96, 80, 64, 48, 32)
"""Sides of a frame, tried in turn until the picture is small enough."""
CLIPS, PER_LINE, GAP, TITLE, TIME = 3, 8, 6, 30, 16
LONGEST_TITLE = 110


def corpus(committed: Committed) -> Drawn:
    """Draw the counts of an ingested corpus."""
    takes = committed.table("ingest", "takes", ("scenario", "split"))
    windows = committed.table("ingest", "windows", ("horizon", "split"))
    rejects = committed.table("ingest", "ingest.rejects", ("code", "n_units"))
    by_scenario = sorted(_counted(takes, "scenario"), key=lambda bar: (-bar.total, bar.name))
    rising = sorted(_counted(windows, "horizon"), key=lambda bar: int(bar.name))
    by_horizon = [bar._replace(name=f"H = {bar.name}") for bar in rising]
    lost: Counter[str] = Counter()
    for row in rejects.to_pylist():
        lost[row["code"]] += row["n_units"] if RejectCode(row["code"]).severity == "drop" else 0
    left_out = [Bar(code, (("lost", n),)) for code, n in lost.most_common() if n]
    counted = (
        ("Takes by scenario", "takes", by_scenario),
        ("Planning windows by horizon", "windows", by_horizon),
        ("Left out, by reason", "descriptions", left_out),
    )
    panels = [Chart(title, bar_chart(title, unit, bars)) for title, unit, bars in counted]
    keys = [Key(split, legend_mark(split, "square")) for split in SPLITS]
    counts = Counter(takes["split"].to_pylist())
    split_counts = ", ".join(f"{counts[split]:,} {split}" for split in SPLITS)
    advice = " The table of this stage explains each reason." if left_out else ""
    return Drawn(sheet(panels, keys, committed.warning()), f"{takes.num_rows:,} takes: {split_counts}.{advice}")


def _counted(table: pa.Table, column: str) -> list[Bar]:
    """Count rows by a column, split by split."""
    counts = Counter(zip(map(str, table[column].to_pylist()), table["split"].to_pylist(), strict=True))
    return [
        Bar(name, tuple((split, counts[name, split]) for split in SPLITS))
        for name in sorted({name for name, _ in counts})
    ]


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
        chosen.append(Clip(row["take_id"], heading, tuple(row["frame_times_s"])))
    return _at(0, committed, chosen, {clip.take_id: takes[clip.take_id]["video"] for clip in chosen})


def _at(size: int, committed: Committed, chosen: Sequence[Clip], videos: Mapping[str, str]) -> Drawn:
    """Draw the clips at one of the sizes; frames are decoded in child processes, as for the report."""
    side = SIZES_PX[size]
    times_s = {clip.take_id: clip.times_s for clip in chosen}
    shots, _ = frames_of(times_s, videos, committed.run.data_root, side, committed.run.workers)
    if not any(shot.uri for shot in shots.values()):
        raise NothingToDraw(next((shot.reason for shot in shots.values()), "no frame could be decoded"))
    smaller = partial(_at, size + 1, committed, chosen, videos) if size + 1 < len(SIZES_PX) else None
    n, longest = len(chosen[0].times_s), max(len(clip.times_s) for clip in chosen)
    columns = min(PER_LINE, longest)
    tall = TITLE + -(-longest // columns) * (side + TIME + GAP)
    width, height = max(760, GAP + columns * (side + GAP)), GAP + len(chosen) * tall
    parts = [part for index, clip in enumerate(chosen) for part in _clip(clip, shots, side, columns, index * tall)]
    warning, sees = f"{committed.warning()}. " if committed.warning() else "", committed.config.features.size_px
    return Drawn(
        standalone(width, height, parts),
        f"{warning}The {n} frames of a segment in the middle of {len(chosen)} takes, with their times in the video. "
        f"Shown in {side} x {side} pixels; the encoder sees {sees} x {sees}.",
        smaller=smaller,
    )


def _clip(clip: Clip, shots: Mapping[tuple[str, float], Thumbnail], side: int, columns: int, top: int) -> list[Markup]:
    """Draw one clip: its heading, then frames with their times; a missing frame is replaced by its reason."""
    parts = [element("text", shortened(clip.heading, LONGEST_TITLE), class_="title", x=GAP, y=top + 20)]
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


PICTURES = (
    Figure("corpus", "What the corpus contains", ("ingest",), corpus),
    Figure("head-paths", "Head paths of some takes, from three sides", ("trajectories",), head_paths),
    Figure("clips", "Sample clips: the frames that the encoder sees", ("features",), clips),
)
