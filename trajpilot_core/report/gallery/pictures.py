"""Pictures of the gallery: frames as JPEG data URIs, and head paths, integrated from relative motions, in three views.

A missing frame is replaced by its reason. Axes of the drawing: forward, left and up of the head where the path begins.
The raw Aria camera frame (and its device frame) has x down, y left, z forward, so forward = z, left = y, up = -x.
"""

import base64
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.arrays import Array, Image
from trajpilot_core.report.drawing.charts import INK, LINE, SOFT
from trajpilot_core.report.drawing.row_styles import style_of
from trajpilot_core.report.drawing.sheets import svg
from trajpilot_core.video.isolate import run_jobs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIDES = (("from above", 1, 0, -1.0), ("from the left", 0, 2, 1.0), ("from behind", 1, 2, -1.0))
"""(title, axis to the right, axis up, sign of the axis to the right); axes: 0 forward, 1 left, 2 up."""
APART = 1.3
"""Distance of their centres; the extent of all paths is 1."""
VIEWS_IN = (6.0, 2.4)
"""Width and height of three views on a page, inches."""
KINDS = {"true": ("oracle", "-"), "nearest": ("endpoint_traj", ":"), "chosen": ("scorer", "--")}
"""Kind of a path -> the row of its colour, and its dashes."""
JPEG_QUALITY = 82
TIMEOUT_S = 30.0
"""A decoder without output for longer is stopped; the report is built without its frames."""


@dataclass(frozen=True)
class Path:
    """One head path."""

    kind: str
    """`true`, `nearest` (first candidate) or `chosen` (by the scorer)."""
    name: str
    points_m: Array
    """(P, 3) forward, left, up."""

    @property
    def look(self) -> dict[str, Any]:
        """Properties of its line in matplotlib."""
        row, line = KINDS[self.kind]
        return {"color": style_of(row).light, "linestyle": line, "linewidth": 1.4}


def integrate(motions: Array) -> Array:
    """Chain relative motions into positions.

    Args:
        motions: (S, 16, 6) motions of S segments: dx, dy, dz in metres, then the rotation vector in radians, each in
            the earlier body frame.

    Returns:
        (16 S + 1, 3) positions forward, left, up in metres, in the body frame at the start. Segments are joined end to
        start; a pause between two segments that were cut short is not drawn.
    """
    steps = motions.reshape(-1, 6).astype(np.float64)
    from scipy.spatial.transform import Rotation  # saves half a second where only staleness is checked

    position, turned = np.zeros(3), Rotation.identity()
    points = [position]
    for motion, turn in zip(steps[:, :3], Rotation.from_rotvec(steps[:, 3:]), strict=True):
        position = position + turned.apply(motion)
        turned = turned * turn
        points.append(position)
    body = np.stack(points)
    return np.stack([body[:, 2], body[:, 1], -body[:, 0]], axis=1)


@dataclass(frozen=True)
class Views:
    """Head paths from several sides, at one scale with a bar."""

    title: str
    paths: Sequence[Path]
    unit: str
    sides: Sequence[tuple[str, int, int, float]] = SIDES

    @property
    def keys(self) -> Mapping[str, dict[str, Any]]:
        """The name of every path -> properties of its line."""
        return {path.name: path.look for path in self.paths} if len(self.paths) > 1 else {}

    @property
    def description(self) -> str:
        """Its paths by name."""
        return f"Head paths from three sides: {', '.join(path.name for path in self.paths)}"

    def draw(self, axes: "Axes") -> None:
        """Draw the sides next to each other; the extent of all paths is 1."""
        points = np.concatenate([path.points_m for path in self.paths])
        centre = (points.max(axis=0) + points.min(axis=0)) / 2
        extent = max(float((points.max(axis=0) - points.min(axis=0)).max()), 1e-3)
        step = 10.0 ** np.floor(np.log10(extent / 3))
        bar = float(max(step * factor for factor in (1, 2, 5) if step * factor <= extent / 2))
        axes.set_axis_off()
        axes.set_aspect("equal")
        axes.set_ylim(-1.0, 0.85)
        for at, (name, right, up, sign) in enumerate(self.sides):
            left = at * APART
            axes.text(left - 0.6, 0.62, name, color=SOFT)
            axes.plot(left + np.array([-0.6, 0.6, 0.6, -0.6, -0.6]), [-0.6, -0.6, 0.6, 0.6, -0.6], color=LINE, lw=0.8)
            for path in self.paths:
                x = left + sign * (path.points_m[:, right] - centre[right]) / extent
                y = (path.points_m[:, up] - centre[up]) / extent
                axes.plot(x, y, label=path.name, marker="o", markevery=[-1], markersize=3.5, **path.look)
                if path is self.paths[0]:
                    axes.plot(x[:1], y[:1], "+", color=INK)
        axes.plot([-0.6, -0.6 + bar / extent], [-0.7, -0.7], color=INK, linewidth=1.6)
        axes.text(-0.6, -0.75, f"{bar:g} {self.unit}", color=SOFT, va="top")


def three_views(paths: Sequence[Path], unit: str) -> Markup:
    """Return paths from above, from the left and from behind as an SVG element."""
    if not paths:
        return Markup('<p class="empty">No path: the window has no head motions.</p>')
    return svg([Views("", paths, unit)], panel_in=VIEWS_IN)


@dataclass(frozen=True)
class Thumbnail:
    """A picture, or the reason why there is none."""

    uri: str | None
    reason: str

    def pixels(self) -> Image | None:
        """Return its pixels, RGB; None where there are none."""
        if self.uri is None:
            return None
        coded = np.frombuffer(base64.b64decode(self.uri.partition(",")[2]), np.uint8)
        picture = cv2.imdecode(coded, cv2.IMREAD_COLOR)
        return None if picture is None else np.asarray(picture[..., ::-1], np.uint8)


@dataclass(frozen=True)
class Strip:
    """Frames next to each other with their times, seconds; a missing one is replaced by its reason."""

    title: str
    frames: Sequence[tuple[float, Thumbnail]]
    description: str = ""
    keys: Mapping[str, dict[str, Any]] = field(default_factory=dict)

    def draw(self, axes: "Axes") -> None:
        """Draw every frame in a square of side 1."""
        for at, (_, shot) in enumerate(self.frames):
            pixels = shot.pixels()
            if pixels is None:
                axes.text(at + 0.5, 0.5, textwrap.fill(shot.reason, 14), ha="center", va="center", fontsize=6)
            else:
                axes.imshow(pixels, extent=(at + 0.04, at + 0.96, 0.0, 0.92))
        axes.set(xlim=(0, len(self.frames)), ylim=(0, 1))
        axes.set_xticks([at + 0.5 for at in range(len(self.frames))], [f"{time_s:.2f} s" for time_s, _ in self.frames])
        axes.set_yticks([])
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)


def frames_of(
    times_s: Mapping[str, Iterable[float]], files: Mapping[str, str], data_root: str, size_px: int, workers: int
) -> tuple[dict[tuple[str, float], Thumbnail], list[Reject]]:
    """Decode frames of takes in child processes, one job per video, so that no video can crash the report.

    Args:
        times_s: take id -> times of its frames.
        files: take id -> video, relative to the data root; a take with an empty one is left out.

    Returns:
        (take id, time) -> thumbnail, for every requested frame; and the faults as rejects that lose no row.
    """
    takes = [take for take, file in sorted(files.items()) if take in times_s and file]
    times = {take: sorted(set(times_s[take])) for take in takes}
    common = {"kind": "clips", "size_px": size_px}
    jobs = [{**common, "path": f"{data_root}/{files[t]}", "times_s": [[time] for time in times[t]]} for t in takes]
    frames = {(t, time): Thumbnail(None, "the frame could not be decoded") for t in takes for time in times[t]}
    rejects: list[Reject] = []
    for event in run_jobs(jobs, workers=workers, timeout_s=TIMEOUT_S, ahead=4) if jobs else ():
        take = takes[event.job]
        if event.kind == "clip" and event.frames is not None:
            frames[take, times[take][event.values["segment"]]] = Thumbnail(_jpeg(event.frames[0]), "")
        elif event.kind in ("fault", "failed"):
            lost = [times[take][event.values["segment"]]] if event.kind == "fault" else times[take]
            code, detail = event.values["code"], event.values["detail"]
            absent = Thumbnail(None, f"no frame ({code})")  # the detail is in the rejects table
            frames |= {(take, time): absent for time in lost if frames[take, time].uri is None}
            rejects.append(reject("report", RejectCode(code), take, detail, n_units=0))
    return frames, sorted(rejects, key=lambda row: (row.take, row.detail))


def _jpeg(image: NDArray[np.uint8]) -> str:
    """Encode an RGB image (size, size, 3) as a data URI."""
    ok, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not ok:
        raise ValueError(f"an image of shape {image.shape} could not be encoded as JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(data.tobytes()).decode()
