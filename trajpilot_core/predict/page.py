"""plan.html: one offline page with inline style and pictures, without scripts."""

from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np

from schemas.annotation import MOTIONS
from schemas.predict import Plan, PlanRow, Retrieved
from trajpilot_core.arrays import Array
from trajpilot_core.methods import METHODS, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.predict.answers import Clips, Given
from trajpilot_core.predict.footage import Footage
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.report.gallery.pictures import Path, Thumbnail, frames_of, integrate, three_views
from trajpilot_core.report.offline import rendered

SHOT_PX = 224
ShownFrames = tuple[tuple[float, Thumbnail], ...]
"""(time in seconds of the video, frame) of each frame."""


@dataclass(frozen=True)
class Scene:
    """Pictures of the page: frames of the clips and of the retrieved take, and the head paths."""

    start: ShownFrames
    goal: ShownFrames
    aspect: float
    """Width by height of the video, upright."""
    shown: Retrieved | None
    """The window whose motion a row trusted, else the nearest one."""
    is_trusted: bool
    shots: ShownFrames
    """One frame of each segment of that window."""
    paths: tuple[Path, ...]
    unit: str
    caption: str
    """Description of the paths."""


def scene_of(plan: Plan, given: Given, clips: Clips, footage: Footage, root: TrainedRoot, workers: int) -> Scene:
    """Decode the frames and integrate the paths of a plan; `workers`: how many decoders."""
    trusted = next((row.trusted for row in plan.rows if row.trusted is not None), None)
    shown = trusted or (plan.nearest[0] if plan.nearest else None)
    times_s: list[float] = []
    other, middles = None, None
    if shown is not None:
        times_s = [sum(span) / 2 for span in shown.spans_s]
        if root.data_root is not None and "://" not in root.data_root:
            other = FilePath(root.data_root, root.takes[shown.take_id].video)
        windows = given.view.data.windows[plan.horizon]
        segments = windows.segments[windows.window_ids.index(shown.window_id), 1:-1]
        middles = given.view.data.motions[segments].double().cpu().numpy()
    paths, caption = head_paths(clips, middles, shown, trusted is not None)
    probe = footage.probe
    width, height = (probe.width, probe.height) if probe.rotation_deg % 180 == 0 else (probe.height, probe.width)
    of_ends: list[float] = []
    for begin, end in (plan.query.start_s, plan.query.goal_s):  # the first, the middle and the last frame
        last = max(begin, min(end, probe.duration_s) - 1.0 / probe.fps)
        of_ends += [begin, (begin + last) / 2, last]
    ends = _shots(footage.path, of_ends, plan, workers)
    return Scene(
        ends[:3],
        ends[3:],
        width / max(1, height),
        shown,
        trusted is not None,
        _shots(other, times_s, plan, workers),
        paths,
        "m" if plan.motion is not None and plan.motion.scale == "metric" else "(arbitrary scale)",
        caption,
    )


def _shots(video: FilePath | None, times_s: list[float], plan: Plan, workers: int) -> ShownFrames:
    """Decode frames in separate processes; a missing frame has its reason."""
    if not plan.query.frames or video is None or not video.is_file():
        reason = "its video is not on this machine" if plan.query.frames else "frames are switched off"
        return tuple((time_s, Thumbnail(None, reason)) for time_s in times_s)
    frames, _ = frames_of({"": times_s}, {"": video.name}, str(video.parent), SHOT_PX, workers)
    return tuple((time_s, frames["", time_s]) for time_s in times_s)


def head_paths(
    clips: Clips, middles: Array | None, shown: Retrieved | None, is_trusted: bool
) -> tuple[tuple[Path, ...], str]:
    """Return the paths to draw, and their description.

    A trusted motion is drawn between Start and Goal, as the predictor received it. One that was not trusted, and ends
    without a middle, all begin at one point, because their relative position is unknown. `middles` are the motions
    (M, 16, 6) of the window `shown`.
    """
    if clips.motions is None:
        return (), "No path: there is no head motion."
    start, goal = (part.astype(np.float64) for part in clips.motions)
    if middles is not None and shown is not None and is_trusted:
        whole = integrate(np.concatenate([start[None], middles, goal[None]]))
        last = len(whole) - 1 - MOTIONS
        return (
            Path("true", "Start of this video", whole[: MOTIONS + 1]),
            Path("chosen", f"middle steps of {shown.take}, trusted", whole[MOTIONS : last + 1]),
            Path("true", "Goal of this video", whole[last:]),
        ), (
            "Input of the Scorer’s predictor: this video’s own motion at Start and Goal, and between them the "
            "middle steps of the trusted window, joined end to start. Pauses between the steps are not drawn."
        )
    ends = Path("true", "Start of this video", integrate(start)), Path("chosen", "Goal of this video", integrate(goal))
    if middles is None or shown is None:
        return ends, "Start and Goal of this video, both drawn from one point."
    return (*ends, Path("nearest", f"middle steps of {shown.take}, not trusted", integrate(middles))), (
        "The gate stayed closed: no retrieved motion was used. Start and Goal of this video, and for comparison "
        "the middle steps of the nearest retrieved window, all drawn from one point."
    )


def render(plan: Plan, scene: Scene) -> bytes:
    """Render the page of a plan; every text of the data is escaped."""
    return rendered(
        "plan.html.j2",
        plan=plan,
        scene=scene,
        rows={method.id: method for method in METHODS},
        views=three_views(scene.paths, scene.unit),
        role=role,
        gate=gate_said,
    ).encode()


def role(position: int, horizon: int) -> str:
    """Return the printed name of a position."""
    return "Start" if position == 0 else "Goal" if position == horizon - 1 else f"step {position}"


def gate_said(row: PlanRow) -> str:
    """Return a sentence about the decision of a row's gate."""
    if row.gate is None or row.threshold is None:
        return "no gate"
    declared, fallback = method(row.row).gate, method(REFERENCE).name
    assert declared is not None
    state, did = ("open", declared.open_means) if row.opened else ("closed", f"the answer is that of {fallback}")
    never = row.threshold > 1.0
    from_ = f"never opens (on dev no threshold beat {fallback})" if never else f"opens from {row.threshold:.3f}"
    return f"gate {state}: {row.gate:.3f}, {from_}; {did}"


def sentences(plan: Plan) -> list[str]:
    """Return a plan as lines of text: notes, the labels of every row, and the gates with the trusted trajectories."""
    lines = [f"note: {note}" for note in plan.notes]
    for row in plan.rows:
        marks = f"{' (decides)' if row.decides else ''}{' (UNDERTRAINED)' if row.undertrained else ''}"
        lines.append(f"{row.name}{marks}: {' > '.join(step.label for step in row.steps)}")
    for row in plan.rows:
        if row.gate is not None:
            trusted = f": that of {row.trusted.take} ({' > '.join(row.trusted.labels)})" if row.trusted else ""
            lines.append(f"{row.name}: {gate_said(row)}{trusted}")
    return lines
