"""The head motion of the query's two clips: the best source there is, by the very code of the stage `trajectories`.

Pose files that the query names come first. Else the kind of source that the models were trained with comes first: pose
files of the take that the video is, or of the download that it lies in; or the video itself, by Pi3 or by odometry.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.config import RunOptions
from schemas.observation import DOF, MOTIONS
from schemas.poses import VideoSourceName
from schemas.predict import Motion, PlanQuery
from schemas.trajectories import TrajectoryConfig
from trajpilot_core.engine.resolve import resolve_device, resolve_precision
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.errors import InputError
from trajpilot_core.poses.motion_table import ORIGIN, origins
from trajpilot_core.poses.motions import step_rms
from trajpilot_core.poses.sources.base import Done, pose_source
from trajpilot_core.poses.sources.take import capture_motions
from trajpilot_core.predict.features import CLIPS
from trajpilot_core.predict.files import HERE, PoseFiles, bare_take, found_files, given_files
from trajpilot_core.predict.footage import Footage
from trajpilot_core.predict.trained import TrainedRoot

NO_FILE = "no pose file was found"


@dataclass(frozen=True)
class Moved:
    """The head motion of both clips."""

    motions: NDArray[np.float32]
    """(2, 16, 6), raw."""
    motion: Motion


class Found(NamedTuple):
    """The motion, or why there is none."""

    moved: Moved | None
    notes: tuple[str, ...]
    is_unasked_mixture: bool = False
    """It is not of the kind that the models were trained with, and the query did not ask for it by name."""


@dataclass(frozen=True)
class Search:
    """What the sources are asked with."""

    query: PlanQuery
    footage: Footage
    root: TrainedRoot
    run: RunOptions
    scratch: Path


Answer = tuple[Moved | None, str]
"""The motion, or why a source has none."""


def head_motion(search: Search) -> Found:
    """Find and resample the head motion of both clips; a source that fails is named, and the next one is asked.

    Raises:
        InputError: what the query asks for by name cannot be used.
    """
    query, root = search.query, search.root
    if query.poses == "none":
        return Found(None, ("head motion was switched off (poses none)",))
    if query.weights is not None and query.poses != "pi3":
        raise InputError(f"--weights belongs to --poses pi3, and poses is {query.poses}; add the one or drop the other")
    if query.trajectory is not None and query.poses not in ("auto", "aria"):
        raise InputError(f"--trajectory and --poses {query.poses} exclude each other; leave one out")
    failed: list[str] = []
    for attempt in attempts(search):
        moved, why = attempt(search)
        if moved is not None:
            said = mixed(moved.motion, root)
            return Found(moved, (*failed, *said), bool(said) and query.poses == "auto" and query.trajectory is None)
        failed.append(why)
    if query.trajectory is not None or query.poses != "auto":
        raise InputError(f"head motion by {query.trajectory or query.poses} cannot be had: {'; '.join(failed)}")
    return Found(None, tuple(failed))


def attempts(search: Search) -> list[Callable[[Search], Answer]]:
    """Return the sources to ask, best first."""
    query, cfg = search.query, search.root.trajectories
    if query.trajectory is not None:
        return [_named]
    if query.poses == "aria":
        return [_files]
    if query.poses in ("odometry", "pi3"):
        return [_by_video("pi3" if query.poses == "pi3" else "odometry")]
    if cfg.source != "aria":
        return [_by_video(cfg.source), _files]
    return [_files, _by_video(cfg.fallback or "odometry")]


def mixed(motion: Motion, root: TrainedRoot) -> tuple[str, ...]:
    """Return a warning where the query's motion is not of the kind that the models were trained on; else nothing."""
    known = origins(root.inputs.table("motions", ORIGIN))
    own = (motion.source, motion.frame, motion.scale)
    if own in known:
        return ()
    trained = "; ".join(", ".join(origin) for origin in known)
    return (
        f"MIXED HEAD MOTION: this video's is {', '.join(own)}, the models and the bank have {trained} (source, axes, "
        "scale). Every row but No-Traj may be misled",
    )


def _named(search: Search) -> Answer:
    """Read the files that the query names."""
    return _aria(given_files(search.query, search.footage, search.root, search.scratch), search)


def _files(search: Search) -> Answer:
    """Read the files that belong to the video, best first."""
    failed = []
    for files in found_files(search.footage, search.root):
        moved, why = _aria(files, search)
        if moved is not None:
            return moved, ""
        failed.append(why)
    return None, "; ".join(failed) or NO_FILE


def _aria(files: PoseFiles, search: Search) -> Answer:
    """Resample poses from files."""
    (done,) = capture_motions(files.data_root, [(files.take, _segments(search.footage))], search.root.trajectories)
    take = files.take
    names = tuple(name for name in (take.trajectory, take.timesync, take.calibration) if name is not None)
    moved = _moved(done, names, files.clock)
    return moved, "" if moved else f"{take.trajectory or 'the take'}: {_why(done)}"


def _by_video(name: VideoSourceName) -> Callable[[Search], Answer]:
    """Return the source that estimates poses from the video."""

    def estimate(search: Search) -> Answer:
        take = bare_take(search.footage, search.root)
        runtime = Runtime(HERE, resolve_device(search.run.device), search.run.workers, search.scratch)
        cfg = for_video(name, search.root, runtime.device, search.query.weights)
        (done,) = pose_source(name).motions([(take, _segments(search.footage))], cfg, runtime)
        lens = "the calibration's lens" if take.calibration else f"a lens of {cfg.odometry.view_deg:g} degrees, assumed"
        relation = "from the video itself" + (f", {lens}" if name == "odometry" else "")
        moved = _moved(done, (str(search.footage.path),), relation)
        return moved, "" if moved else f"{name} of the video: {_why(done)}"

    return estimate


def for_video(name: VideoSourceName, root: TrainedRoot, device: str, weights: str | None) -> TrajectoryConfig:
    """Return the settings of a source that reads the video.

    They are the root's where its models know the source. Else lengths, which such a source cannot know, are made those
    of the root: the median step of its clips.

    Args:
        name: the source.
        root: what was trained.
        device: `cpu`, `cuda` or `cuda:<number>`; arithmetic that a CPU lacks is not kept.
        weights: of Pi3; None: those of the root.
    """
    cfg = root.trajectories
    pi3 = cfg.pi3 if weights is None else cfg.pi3.replace(weights=weights)
    kept = pi3.precision if device.startswith("cuda") else "fp32"
    cfg = cfg.replace(pi3=resolve_precision(pi3.replace(precision=kept), device))
    if name in cfg.sources():
        return cfg
    steps = root.inputs.vectors("motions", "motions").reshape(-1, MOTIONS, DOF)[:, :, :3].astype(np.float64)
    median = float(np.median([step_rms(clip) for clip in steps])) if len(steps) else 0.0
    frame = "camera" if cfg.frame == "device" else cfg.frame
    return cfg.replace(source=name, fallback=None, frame=frame, scale="rms", scale_factor=median or None)


def _segments(footage: Footage) -> JsonValue:
    """Return the clips as the pose sources take segments."""
    return [[name, *span] for name, span in zip(CLIPS, (footage.start_s, footage.goal_s), strict=True)]


def _moved(done: Done, files: tuple[str, ...], clock: str) -> Moved | None:
    """Return the motion of both clips; None where one of them has none."""
    rows: Mapping[str, dict[str, Any]] = {row["segment_id"]: row for row in done.table.to_pylist()}
    if set(rows) != set(CLIPS):
        return None
    motions = np.array([rows[name]["motions"] for name in CLIPS], np.float32).reshape(-1, MOTIONS, DOF)
    first = rows[CLIPS[0]]
    kind = Motion(source=first["source"], frame=first["frame"], scale=first["scale"], files=files, clock=clock)
    return Moved(motions, kind)


def _why(done: Done) -> str:
    """Return why a clip has no motion."""
    return "; ".join(f"{row.code}: {row.detail}" for row in done.rejects) or "no motion came back"
