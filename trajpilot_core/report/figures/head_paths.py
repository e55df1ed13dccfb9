"""Head paths of some takes from above, integrated from the committed motions."""

import numpy as np
import pyarrow as pa

from schemas.observation import DOF, MOTIONS
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.drawing.charts import Axes, Point, Series, plan_chart, shortened
from trajpilot_core.report.drawing.svg_grid import Drawn, NothingToDraw, Panel, sheet
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.gallery.pictures import integrate

TAKES, SEGMENTS = 6, 5
"""Takes that are drawn, and segments of each, from its first on."""
LONGEST = 38


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
        "pauses between segments are not drawn. Cross: start, where the head looks up the page. Dot: end.",
    )


def _panel(shard: pa.Table, start_s: dict[str, float], names: dict[str, str]) -> Panel:
    """Draw one take."""
    rows = sorted(shard.to_pylist(), key=lambda row: start_s.get(row["segment_id"], 0.0))[:SEGMENTS]
    motions = np.array([row["motions"] for row in rows], dtype=np.float64).reshape(-1, MOTIONS, DOF)
    forward, left, _ = integrate(motions).T
    points = tuple(Point(-x, y, y, y) for x, y in zip(left.tolist(), forward.tolist(), strict=True))
    metric = {row["scale"] for row in rows} == {"metric"}
    unit = "m" if metric else "arbitrary scale"
    name = names.get(rows[0]["take_id"], rows[0]["take_id"])
    title = f"{shortened(name, LONGEST)}, {len(rows)} segments"
    axes = Axes(title, f"to the right, {unit}; upwards: forward, {unit}", "", ())
    return Panel(title, plan_chart(axes, [Series(title, "oracle", points)]))


FIGURE = Figure("head-paths", "Head paths of some takes, seen from above", stages=("trajectories",), draw=head_paths)
