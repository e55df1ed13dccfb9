"""The head paths of a plan as a picture that stands alone, for the Prefect UI; no frame of a video is in it."""

from trajpilot_core.predict.drawing import Scene
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.drawing.charts import Axes, Point, Series, keys_of, plan_chart
from trajpilot_core.report.drawing.picture import Drawn, NotDrawn, Picture, fitted
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.report.gallery.paths import VIEWS, Path

NAME, TITLE = "paths", "Head paths of the plan"
STYLES = {"true": "oracle", "nearest": "endpoint_traj", "chosen": "scorer"}
"""Kind of a path -> row whose colour it borrows, as in report.css: a path is no row."""
NAMES = {
    ("true", False): "Start",
    ("true", True): "Goal",
    ("chosen", True): "Goal",
    ("chosen", False): "trusted middle steps",
    ("nearest", False): "nearest, not trusted",
}
"""(kind of a path, is it the Goal) -> short name for the legend."""
WAYS = ("forward", "left", "up")


def paths_picture(scene: Scene, *, simulated: bool) -> Picture | NotDrawn:
    """Draw the paths from three sides."""
    if not scene.paths:
        return NotDrawn(NAME, TITLE, "there is no head motion")
    panels = [_panel(view, scene) for view in VIEWS]
    keys = keys_of([_series(path, VIEWS[0]) for path in scene.paths])
    content = sheet(panels, keys, WARNING if simulated else "", len(VIEWS))
    return fitted(NAME, TITLE, Drawn(content, "Cross: where a path begins. Dot: where it ends."))


def _panel(view: tuple[str, int, int, float], scene: Scene) -> Panel:
    """Draw one side."""
    title, right, up, sign = view
    across = f"{WAYS[right] if sign > 0 else 'right'}, {scene.unit}; upwards: {WAYS[up]}"
    return Panel(title, plan_chart(Axes(title, across, "", ()), [_series(path, view) for path in scene.paths]))


def _series(path: Path, view: tuple[str, int, int, float]) -> Series:
    """Return one path as a line."""
    _, right, up, sign = view
    points = ((sign * float(p[right]), float(p[up])) for p in path.points_m)
    name = NAMES[path.kind, path.name.startswith("Goal")]
    return Series(name, STYLES[path.kind], tuple(Point(x, y, y, y) for x, y in points))
