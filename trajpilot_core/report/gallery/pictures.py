"""Pictures of the gallery: frames as JPEG data URIs, and head paths, integrated from relative motions, in three views.

A missing frame is replaced by its reason. Axes of the drawing: forward, left and up of the head where the path begins.
The raw Aria camera frame (and its device frame) has x down, y left, z forward, so forward = z, left = y, up = -x.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.arrays import Array
from trajpilot_core.report.drawing.charts import element
from trajpilot_core.video.isolate import run_jobs

VIEWS = (("from above", 1, 0, -1.0), ("from the left", 0, 2, 1.0), ("from behind", 1, 2, -1.0))
"""(title, axis to the right, axis up, sign of the axis to the right); axes: 0 forward, 1 left, 2 up."""
VIEW_PX = 170
STYLES = {"true": "solid", "nearest": "dotted", "chosen": "dashed"}
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


def three_views(paths: Sequence[Path], unit: str) -> Markup:
    """Draw all paths from above, from the left and from behind, at one scale with a bar."""
    if not paths:
        return element("p", "No path: the window has no head motions.", class_="empty")
    everything = np.concatenate([path.points_m for path in paths])
    centre = (everything.max(axis=0) + everything.min(axis=0)) / 2
    extent = max(float((everything.max(axis=0) - everything.min(axis=0)).max()), 1e-3)
    scale = (VIEW_PX - 36) / extent
    step = 10.0 ** np.floor(np.log10(extent / 3))
    bar = float(
        max(step * factor for factor in (1, 2, 5) if step * factor <= extent / 2)
    )  # about a third of the extent
    parts = [_view(index, view, paths, centre, scale) for index, view in enumerate(VIEWS)]
    end, below = round(8 + bar * scale, 1), VIEW_PX + 10
    line = element("line", x1=8, x2=end, y1=below, y2=below)
    parts.append(element("g", line, element("text", f"{bar:g} {unit}", class_="tick", x=8, y=below + 13), class_="bar"))
    names = ", ".join(f"{path.name} ({STYLES[path.kind]} line)" for path in paths)
    description, size = f"Head paths from three sides: {names}", f"0 0 {3 * VIEW_PX} {VIEW_PX + 28}"
    return element("svg", *parts, class_="paths", viewBox=size, role="img", aria_label=description)


def _view(index: int, view: tuple[str, int, int, float], paths: Sequence[Path], centre: Array, scale: float) -> Markup:
    """Draw one view in its own square."""
    title, right, up, sign = view
    middle = index * VIEW_PX + VIEW_PX / 2
    left = index * VIEW_PX + 2
    parts = [
        element("rect", class_="view", x=left, y=1, width=VIEW_PX - 4, height=VIEW_PX - 2),
        element("text", title, class_="tick", x=left + 6, y=13),
    ]
    for path in paths:
        x = middle + sign * (path.points_m[:, right] - centre[right]) * scale
        y = VIEW_PX / 2 + 6 - (path.points_m[:, up] - centre[up]) * scale
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        end = element("circle", cx=f"{x[-1]:.1f}", cy=f"{y[-1]:.1f}", r=2.6)
        parts.append(element("g", element("polyline", points=line), end, class_=f"path {path.kind}"))
    first = paths[0].points_m[0]
    x, y = middle + sign * (first[right] - centre[right]) * scale, VIEW_PX / 2 + 6 - (first[up] - centre[up]) * scale
    parts.append(element("path", class_="start", d=f"M{x:.1f} {y:.1f}m-4 0h8m-4-4v8"))
    return Markup("").join(parts)


@dataclass(frozen=True)
class Thumbnail:
    """A picture, or the reason why there is none."""

    uri: str | None
    reason: str


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
