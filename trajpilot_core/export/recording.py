"""A window as a recording for rerun (.rrd), on one timeline: frames, head path, trajectories, labels.

rerun-sdk is the extra `viz` (docs/decisions/dependencies.md). Nothing is sent anywhere: the SDK writes a file.
"""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from schemas.rejects import RejectCode
from trajpilot_core.errors import InputError
from trajpilot_core.export.tables import refuse_inside, replaced
from trajpilot_core.export.window import TRUE, ShownWindow
from trajpilot_core.video.isolate import run_jobs

TIMELINE = "video_time"
"""Seconds of the take's video."""
FRAMES_HZ = 4.0
SIDE_PX = 320
"""Frames are squashed to this square, as those that the encoder sees are to theirs."""
JPEG_QUALITY = 82
TIMEOUT_S = 60.0
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
        data_root: where the video lies; frames are taken from a folder of this machine only.
        warning: what has to stand next to it; empty where the corpus was recorded.
        target: the file, which ends in .rrd.
        root: of the run, in whose artifacts nothing may be written.

    Returns:
        What could not be shown, with the reason.

    Raises:
        InputError: rerun-sdk is not installed, or the file lies among the artifacts.
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
        for said in shown.said:
            recording.set_time(TIMELINE, duration=said.time_s)
            recording.log(f"labels/{said.who}", rr.TextLog(said.text))
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
    """Log the trajectories of the middle steps from where these begin, all from one origin."""
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
        return [], ["no frames: the run does not say where its videos lie; give --data"]
    if "://" in data_root:
        return [], ["no frames: they are taken from a local data root only"]
    times_s = np.arange(shown.start_s, shown.end_s, 1 / FRAMES_HZ).tolist()
    job = {"kind": "clips", "path": f"{data_root}/{shown.video}", "times_s": [[t] for t in times_s]}
    frames: list[tuple[float, bytes]] = []
    faults: list[str] = []
    for event in run_jobs([{**job, "size_px": SIDE_PX, "backend": "pyav"}], workers=1, timeout_s=TIMEOUT_S, ahead=4):
        if event.kind == "clip" and event.frames is not None:
            frames.append((times_s[event.values["segment"]], _jpeg(event.frames[0])))
        elif event.kind in ("fault", "failed"):
            faults.append(f"{RejectCode(event.values['code'])}: {event.values['detail']}")
    return sorted(frames), _counted(faults, len(times_s) - len(frames))


def _counted(faults: Sequence[str], n_missing: int) -> list[str]:
    return [f"{n_missing} frames are missing: {', '.join(dict.fromkeys(faults)) or 'not decoded'}"] if n_missing else []


def _jpeg(image: Any) -> bytes:
    """Encode an RGB image (side, side, 3)."""
    made, data = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not made:
        raise ValueError(f"an image of shape {image.shape} could not be encoded as JPEG")
    return bytes(data.tobytes())
