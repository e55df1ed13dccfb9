"""A window as a recording for rerun (.rrd), on one timeline: frames, head path, trajectories, labels.

rerun-sdk is the extra `viz` (docs/decisions/dependencies.md). The SDK only writes a file and sends nothing.
"""

import base64
import importlib
from pathlib import Path
from typing import Any

import numpy as np

from trajpilot_core.errors import InputError
from trajpilot_core.export.tables import refuse_inside, replaced
from trajpilot_core.export.window import TRUE, ShownWindow
from trajpilot_core.report.gallery.frames import Wanted, thumbnails

TIMELINE = "video_time"
"""Seconds of the take's video."""
FRAMES_HZ = 4.0
SIDE_PX = 320
"""Frames are squashed to a square of this side, like those that the encoder sees."""
COLOURS = {TRUE: (27, 110, 243), "retrieved": (150, 150, 150), "chosen": (230, 120, 20)}
SUFFIX = ".rrd"


def sdk() -> Any:
    """Return the module of rerun-sdk.

    Raises:
        InputError: it is not installed.
    """
    try:
        return importlib.import_module("rerun")
    except ModuleNotFoundError as error:
        raise InputError(f'--rerun needs rerun-sdk ({error}); install it with `pip install ".[viz]"`') from error


def write_recording(shown: ShownWindow, data_root: str, warning: str, target: Path, root: str = "") -> list[str]:
    """Write a window as a recording.

    Args:
        shown: the window.
        data_root: folder of the video; frames are read from a local folder only.
        warning: notice for the recording; empty for a recorded corpus.
        target: the file, which ends in .rrd.
        root: of the run; nothing is written into its artifacts.

    Returns:
        What could not be shown, with the reason.

    Raises:
        InputError: rerun-sdk is not installed, or the file is inside the artifacts.
    """
    rr = sdk()
    refuse_inside(root, target)
    frames, missing = frames_of(shown, data_root)
    if not len(shown.path_m):
        missing.append("no head path: a segment of the window has no motions")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replaced(target) as fresh, rr.RecordingStream("trajpilot", recording_id=shown.window_id) as recording:
        recording.save(fresh)
        about = "\n\n".join(part for part in (warning, f"window {shown.window_id}", *missing) if part)
        recording.log("about", rr.TextDocument(about), static=True)
        for time_s, jpeg in frames:
            recording.set_time(TIMELINE, duration=time_s)
            recording.log("video", rr.EncodedImage(contents=jpeg, media_type="image/jpeg"))
        _log_path(rr, recording, shown)
        _log_trajectories(rr, recording, shown)
        for label in shown.said:
            recording.set_time(TIMELINE, duration=label.time_s)
            recording.log(f"labels/{label.who}", rr.TextLog(label.text))
        recording.flush()
        recording.disconnect()
    return missing


def _log_path(rr: Any, recording: Any, shown: ShownWindow) -> None:
    """Log the head's position at each knot, and the path up to there."""
    for at, time_s in enumerate(shown.path_times_s):
        recording.set_time(TIMELINE, duration=float(time_s))
        recording.log("world/head", rr.Points3D(shown.path_m[at : at + 1], radii=0.02))
        recording.log("world/head_path", rr.LineStrips3D([shown.path_m[: at + 1]]))


def _log_trajectories(rr: Any, recording: Any, shown: ShownWindow) -> None:
    """Log the trajectories of the middle steps from their beginning, all from one origin."""
    recording.set_time(TIMELINE, duration=shown.middle_s)
    for one in shown.trajectories:
        name = f"{one.kind}: {one.window_id} ({shown.unit})"
        strip = rr.LineStrips3D([one.points_m], colors=[COLOURS[one.kind]], labels=[name])
        recording.log(f"trajectories/{one.kind}", strip)


def frames_of(shown: ShownWindow, data_root: str) -> tuple[list[tuple[float, bytes]], list[str]]:
    """Decode the frames of a window in a child process.

    Returns:
        (time, JPEG) in order, and why there are none, or fewer.
    """
    if not data_root:
        return [], ["no frames: the folder of the videos is unknown; give --data"]
    if "://" in data_root:
        return [], ["no frames: they are read from a local data root only"]
    times_s = tuple(np.arange(shown.start_s, shown.end_s, 1 / FRAMES_HZ).tolist())
    made, rejects = thumbnails([Wanted(shown.take_id, f"{data_root}/{shown.video}", times_s)], SIDE_PX, 1)
    uris = [(time_s, made[shown.take_id, time_s].uri) for time_s in times_s]
    frames = [(time_s, base64.b64decode(uri.partition(",")[2])) for time_s, uri in uris if uri is not None]
    if len(frames) == len(times_s):
        return frames, []
    why = ", ".join(dict.fromkeys(f"{row.code}: {row.detail}" for row in rejects)) or "not decoded"
    return frames, [f"{len(times_s) - len(frames)} frames are missing: {why}"]
