"""What the page shows in addition to words: frames of the clips and of the retrieved take, and the head paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath

import numpy as np

from schemas.observation import MOTIONS
from schemas.predict import Plan, Retrieved
from trajpilot_core.arrays import Array
from trajpilot_core.predict.answers import Clips, Given
from trajpilot_core.predict.footage import ClipTimes, Footage
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.report.gallery.frames import Thumbnail, Wanted, thumbnails
from trajpilot_core.report.gallery.paths import Path, integrate

SHOT_PX = 224
QUERY = "query"
OFF = Thumbnail(None, "frames are switched off")
GONE = Thumbnail(None, "its video is not on this machine")


@dataclass(frozen=True)
class ShownFrame:
    """A frame with its time."""

    time_s: float
    picture: Thumbnail


@dataclass(frozen=True)
class Scene:
    """Pictures of one plan."""

    start: tuple[ShownFrame, ...]
    goal: tuple[ShownFrame, ...]
    aspect: float
    """Width by height of the video, upright."""
    shown: Retrieved | None
    """The window whose motion a row trusted; where none was trusted, the nearest one."""
    is_trusted: bool
    shots: tuple[ShownFrame, ...]
    """One frame of each segment of that window."""
    paths: tuple[Path, ...]
    unit: str
    caption: str
    """What the paths are, in words."""


def scene_of(plan: Plan, given: Given, clips: Clips, footage: Footage, root: TrainedRoot, workers: int) -> Scene:
    """Decode the frames and integrate the paths of a plan.

    Args:
        plan: what was answered.
        given: the tensors behind it.
        clips: what was measured.
        footage: the video.
        root: corpus of the retrieved window.
        workers: decoders.
    """
    trusted = next((row.trusted for row in plan.rows if row.trusted is not None), None)
    shown = trusted or (plan.nearest[0] if plan.nearest else None)
    spans = [] if shown is None else list(shown.spans_s)
    wanted = {QUERY: (str(footage.path), [*_times(footage.start_s, footage), *_times(footage.goal_s, footage)])}
    video = _video_of(shown, root)
    if video is not None:
        wanted["other"] = (video, [sum(span) / 2 for span in spans])
    pictures = _pictures(wanted, workers) if plan.query.frames else {}
    absent = GONE if plan.query.frames else OFF
    middles = _middles(shown, given)
    paths, caption = head_paths(clips, middles, shown, trusted is not None)
    probe = footage.probe
    width, height = (probe.width, probe.height) if probe.rotation_deg % 180 == 0 else (probe.height, probe.width)
    return Scene(
        tuple(ShownFrame(t, pictures.get((QUERY, t), OFF)) for t in _times(footage.start_s, footage)),
        tuple(ShownFrame(t, pictures.get((QUERY, t), OFF)) for t in _times(footage.goal_s, footage)),
        width / max(1, height),
        shown,
        trusted is not None,
        tuple(ShownFrame(sum(span) / 2, pictures.get(("other", sum(span) / 2), absent)) for span in spans),
        paths,
        "m" if plan.motion is not None and plan.motion.scale == "metric" else "(arbitrary scale)",
        caption,
    )


def _times(span: ClipTimes, footage: Footage) -> list[float]:
    """Return the seconds of the first, the middle and the last frame of a clip."""
    begin, end = span
    last = max(begin, min(end, footage.probe.duration_s) - 1.0 / footage.probe.fps)
    return [begin, (begin + last) / 2, last]


def _video_of(shown: Retrieved | None, root: TrainedRoot) -> str | None:
    """Return the video of a retrieved window, if it lies on this machine."""
    if shown is None or root.data_root is None or "://" in root.data_root:
        return None
    video = next(take.video for take in root.takes if take.take_id == shown.take_id)
    path = FilePath(root.data_root, video)
    return str(path) if path.is_file() else None


def _pictures(wanted: Mapping[str, tuple[str, Sequence[float]]], workers: int) -> dict[tuple[str, float], Thumbnail]:
    """Decode the wanted frames in processes of their own; (whose, time) -> picture."""
    asked = [Wanted(name, path, tuple(sorted(set(times)))) for name, (path, times) in wanted.items()]
    made, _ = thumbnails(asked, SHOT_PX, workers)
    return made


def _middles(shown: Retrieved | None, given: Given) -> Array | None:
    """Return the (M, 16, 6) middle motions of a retrieved window."""
    if shown is None or given.found is None:
        return None
    windows = given.view.data.windows[given.found.horizon]
    row = windows.window_ids.index(shown.window_id)
    motions: Array = given.view.data.motions[windows.segments[row, 1:-1]].double().cpu().numpy()
    return motions


def head_paths(
    clips: Clips, middles: Array | None, shown: Retrieved | None, is_trusted: bool
) -> tuple[tuple[Path, ...], str]:
    """Return the paths to draw, and what they are in words.

    A trusted motion stands between Start and Goal, as the predictor was given it. One that was not trusted, and the
    ends without a middle, begin at one point each, because their relative position is unknown.

    Args:
        clips: motion of Start and Goal, or none.
        middles: (M, 16, 6) of the retrieved window.
        shown: that window.
        is_trusted: the gate opened for it.
    """
    if clips.motions is None:
        return (), "No path: there is no head motion."
    start, goal = (part.astype(np.float64) for part in clips.motions)
    if middles is None or shown is None:
        return _ends(start, goal), "Start and Goal of this video, both drawn from one point."
    if not is_trusted:
        path = Path("nearest", f"middle steps of {shown.take}, not trusted", integrate(middles))
        return (*_ends(start, goal), path), (
            "The gate stayed closed: no retrieved motion was used. Start and Goal of this video, and for comparison "
            "the middle steps of the nearest retrieved window, all drawn from one point."
        )
    whole = integrate(np.concatenate([start[None], middles, goal[None]]))
    last = len(whole) - 1 - MOTIONS
    return (
        Path("true", "Start of this video", whole[: MOTIONS + 1]),
        Path("chosen", f"middle steps of {shown.take}, trusted", whole[MOTIONS : last + 1]),
        Path("true", "Goal of this video", whole[last:]),
    ), (
        "What the Scorer’s predictor was given: this video’s own motion at Start and Goal, and between them the middle "
        "steps of the trusted window, joined end to start. Pauses between the steps are not drawn."
    )


def _ends(start: Array, goal: Array) -> tuple[Path, ...]:
    """Return both ends from one point."""
    return Path("true", "Start of this video", integrate(start)), Path("chosen", "Goal of this video", integrate(goal))
