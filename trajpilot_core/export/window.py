"""One window of a finished run on the clock of its video, as a record and as a recording for rerun (.rrd).

Times are seconds of the take's video. Positions are forward, left and up in the body frame at the window's start.
rerun-sdk is the extra `viz` (docs/decisions/dependencies.md); it only writes a file and sends nothing.
"""

import base64
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl

from schemas.annotation import DOF, KNOTS, MOTIONS
from trajpilot_core.arrays import Array
from trajpilot_core.errors import InputError
from trajpilot_core.export.tables import refuse_inside, replaced
from trajpilot_core.methods import METHODS
from trajpilot_core.report.gallery.pictures import Wanted, integrate, thumbnails

TRUE = "true"
TIMELINE = "video_time"
"""Seconds of the take's video."""
FRAMES_HZ = 4.0
SIDE_PX = 320
"""Frames are squashed to a square of this side, like those that the encoder sees."""
COLOURS = {TRUE: (27, 110, 243), "retrieved": (150, 150, 150), "chosen": (230, 120, 20)}
SUFFIX = ".rrd"


class TableSource(Protocol):
    """A finished run, as far as a window needs it."""

    def table(self, name: str) -> pl.DataFrame:
        """Read a table whole."""
        ...


class SaidLabel(NamedTuple):
    """A label at a time."""

    time_s: float
    who: str
    """`true`, or the id of a row."""
    text: str


@dataclass(frozen=True)
class Trajectory:
    """The head motion over the middle steps of a window."""

    kind: str
    """`true`, `retrieved` (the first candidate) or `chosen` (behind a gate)."""
    window_id: str
    points_m: Array
    """(P, 3)."""


@dataclass(frozen=True)
class ShownWindow:
    """What a recording shows of one window, except its frames."""

    window_id: str
    take_id: str
    video: str
    """Relative to the data root."""
    start_s: float
    end_s: float
    middle_s: float
    """Where its first middle step begins: what is predicted begins here."""
    path_times_s: Array
    """(P,) of the head path; empty where a segment has no motions."""
    path_m: Array
    """(P, 3)."""
    unit: str
    trajectories: tuple[Trajectory, ...]
    said: tuple[SaidLabel, ...]
    """By time."""


def first_window(run: TableSource) -> str:
    """Return the default window: of the longest ones, the first by id with an open gate; without one, the first.

    Raises:
        InputError: no window was scored.
    """
    outcomes = run.table("outcomes")
    if not outcomes.height:
        raise InputError("no window was scored; run the stage evaluation first")
    longest = outcomes.filter(pl.col("horizon") == pl.col("horizon").max())
    opened = longest.filter(pl.col("opened").fill_null(value=False))
    return str((opened if opened.height else longest)["window_id"].min())


def shown_window(run: TableSource, window_id: str) -> ShownWindow:
    """Collect what a recording shows of a scored window.

    Args:
        run: the finished run.
        window_id: as the table `outcomes` has it.

    Raises:
        InputError: no such window was scored.
    """
    rows = run.table("outcomes").filter(pl.col("window_id") == window_id).to_dicts()
    if not rows:
        raise InputError(f"no window {window_id!r} was scored; the table outcomes has the ids")
    candidates = _candidates(rows)
    wanted = [window_id, *candidates.values()]
    windows = {
        row["window_id"]: row for row in run.table("windows").filter(pl.col("window_id").is_in(wanted)).to_dicts()
    }
    ids = [segment for row in windows.values() for segment in row["segment_ids"]]
    segments = _by_segment(run.table("segments"), ids)
    motions = _by_segment(run.table("motions"), ids)
    steps = [segments[segment] for segment in windows[window_id]["segment_ids"]]
    (take,) = run.table("takes").filter(pl.col("take_id") == steps[0]["take_id"]).to_dicts()
    times_s, path_m = _head_path(steps, motions)
    scales = {row["scale"] for row in motions.values()}
    return ShownWindow(
        window_id=window_id,
        take_id=take["take_id"],
        video=take["video"],
        start_s=steps[0]["start_s"],
        end_s=steps[-1]["end_s"],
        middle_s=steps[1]["start_s"],
        path_times_s=times_s,
        path_m=path_m,
        unit="m" if scales == {"metric"} else "arbitrary scale",
        trajectories=_trajectories({TRUE: window_id, **candidates}, windows, motions),
        said=_said(steps, rows, dict(run.table("labels").select("label_id", "label").iter_rows())),
    )


def _candidates(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return `retrieved` and `chosen` -> the window that the first row without, and with, a gate followed."""
    entries = {row["variant"]: row["candidate"] for row in rows}
    found: dict[str, str] = {}
    for one in sorted(METHODS, key=lambda one: one.gate is not None):
        if one.follows and entries.get(one.id):
            found.setdefault("retrieved" if one.gate is None else "chosen", entries[one.id])
    return found


def _by_segment(table: pl.DataFrame, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    return {row["segment_id"]: row for row in table.filter(pl.col("segment_id").is_in(ids)).to_dicts()}


def _motions_of(segment_ids: Sequence[str], motions: Mapping[str, Mapping[str, Any]]) -> Array | None:
    """Return (S, 16, 6) motions; None where a segment has none."""
    entries = [motions.get(segment) for segment in segment_ids]
    rows = [row["motions"] for row in entries if row is not None]
    if not rows or len(rows) < len(entries):
        return None
    return np.array(rows, np.float64).reshape(-1, MOTIONS, DOF)


def _head_path(steps: Sequence[Mapping[str, Any]], motions: Mapping[str, Mapping[str, Any]]) -> tuple[Array, Array]:
    """Return the times (P,) and positions (P, 3) of the head over a window; the head stands still between segments."""
    moved = _motions_of([row["segment_id"] for row in steps], motions)
    if moved is None:
        return np.empty(0), np.empty((0, 3))
    knots = [np.linspace(row["start_s"], row["end_s"], KNOTS)[1:] for row in steps]
    return np.concatenate([[steps[0]["start_s"]], *knots]), integrate(moved)


def _trajectories(
    wanted: Mapping[str, str], windows: Mapping[str, Mapping[str, Any]], motions: Mapping[str, Mapping[str, Any]]
) -> tuple[Trajectory, ...]:
    """Integrate the middle motions of the windows that have all of them."""
    found = []
    for kind, window_id in wanted.items():
        moved = _motions_of(windows.get(window_id, {"segment_ids": ()})["segment_ids"][1:-1], motions)
        if moved is not None:
            found.append(Trajectory(kind, window_id, integrate(moved)))
    return tuple(found)


def _said(
    steps: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], labels: Mapping[str, str]
) -> tuple[SaidLabel, ...]:
    """Return the true label at the start of each step, and what the rows of the gallery answered there."""
    shown = [one.id for one in METHODS if one.in_gallery]
    found = [SaidLabel(step["start_s"], TRUE, labels.get(step["label_id"], step["label_id"])) for step in steps]
    for row in rows:
        if row["variant"] in shown:
            for step, decoded in zip(steps, row["decoded_ids"], strict=True):
                found.append(SaidLabel(step["start_s"], row["variant"], labels.get(decoded, decoded)))
    return tuple(sorted(found))


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
