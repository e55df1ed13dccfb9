"""The head motion of the query's two clips, from the best available source, by the code of the stage `trajectories`.

Pose files that the query names come first, else the kind of source that the models were trained with: pose files of the
take that the video is, or of the download that contains it; or the video itself, by Pi3 or by odometry.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.annotation import DOF, MOTIONS
from schemas.config import RunOptions
from schemas.poses import TrajectoryConfig, VideoSourceName
from schemas.predict import Motion, PlanQuery
from trajpilot_core.engine.resolve import resolve_device, resolve_precision
from trajpilot_core.engine.stage import Runtime
from trajpilot_core.errors import InputError
from trajpilot_core.poses.motions import step_rms
from trajpilot_core.poses.sources.base import ORIGIN, Done, origins, pose_source
from trajpilot_core.poses.sources.take import capture_motions
from trajpilot_core.predict.footage import CLIPS, Footage
from trajpilot_core.predict.pose_files import HERE, PoseFiles, found_files, given_files, query_take
from trajpilot_core.predict.trained import TrainedRoot


class Found(NamedTuple):
    """The head motion of both clips, or the reasons why there is none."""

    notes: tuple[str, ...]
    motions: NDArray[np.float32] | None = None
    """(2, 16, 6), raw."""
    motion: Motion | None = None
    is_unasked_mixture: bool = False
    """It is of another kind than the training data, and the query did not name that kind."""


class Estimate(NamedTuple):
    """The result of a source for the clips."""

    what: str
    """Name of the source, for messages."""
    done: Done
    files: tuple[str, ...]
    clock: str


def head_motion(query: PlanQuery, footage: Footage, root: TrainedRoot, run: RunOptions, scratch: Path) -> Found:
    """Find and resample the head motion of both clips; a source that fails is noted, and the next one is tried.

    Raises InputError: a source that the query names cannot be used.
    """
    if query.poses == "none":
        return Found(("head motion is switched off (poses none)",))
    if query.weights is not None and query.poses != "pi3":
        raise InputError(f"--weights belongs to --poses pi3, not {query.poses}; set --poses pi3 or drop --weights")
    if query.trajectory is not None and query.poses not in ("auto", "aria"):
        raise InputError(f"--trajectory and --poses {query.poses} exclude each other; leave one out")
    failed: list[str] = []
    for estimate in estimates(query, footage, root, run, scratch):
        if isinstance(estimate, str):
            failed.append(estimate)
            continue
        rows: dict[str, dict[str, Any]] = {row["segment_id"]: row for row in estimate.done.table.to_pylist()}
        if set(rows) != set(CLIPS):
            why = "; ".join(f"{row.code}: {row.detail}" for row in estimate.done.rejects) or "no motion was returned"
            failed.append(f"{estimate.what}: {why}")
            continue
        origin = {name: rows[CLIPS[0]][name] for name in ("source", "frame", "scale")}
        motion = Motion(**origin, files=estimate.files, clock=estimate.clock)
        motions = np.array([rows[name]["motions"] for name in CLIPS], np.float32).reshape(-1, MOTIONS, DOF)
        mixture = mixed(motion, root)
        unasked = bool(mixture) and query.poses == "auto" and query.trajectory is None
        return Found((*failed, *mixture), motions, motion, unasked)
    if query.trajectory is not None or query.poses != "auto":
        raise InputError(f"no head motion from {query.trajectory or query.poses}: {'; '.join(failed)}")
    return Found(tuple(failed))


def estimates(
    query: PlanQuery, footage: Footage, root: TrainedRoot, run: RunOptions, scratch: Path
) -> Iterator[Estimate | str]:
    """Yield the result of each source for the clips, or the reason why it cannot be tried; best first, lazily."""

    def by_files(files: PoseFiles) -> Estimate:
        take = files.take
        (done,) = capture_motions(files.data_root, [(take, footage.segments)], root.trajectories)
        names = tuple(name for name in (take.trajectory, take.timesync, take.calibration) if name is not None)
        return Estimate(take.trajectory or "the take", done, names, files.clock)

    if query.trajectory is not None:
        yield by_files(given_files(query, footage, root, scratch))
        return
    trained = root.trajectories.source
    known = (trained, "odometry" if trained == "aria" else "aria")
    for name in known if query.poses == "auto" else (query.poses,):
        if name == "aria":
            files = None
            for files in found_files(footage, root):
                yield by_files(files)
            if files is None:
                yield "no pose file was found"
            continue
        # poses from the video itself, with the calibration if it is known
        files, calibration = next(found_files(footage, root), None), None
        if files is not None and files.take.calibration is not None:
            path = Path(files.data_root, files.take.calibration)
            calibration = str(path) if path.is_file() else None
        take = query_take(footage, video=str(footage.path).lstrip("/"), calibration=calibration)
        runtime = Runtime(HERE, resolve_device(run.device), run.workers, scratch)
        source: VideoSourceName = "pi3" if name == "pi3" else "odometry"
        cfg = for_video(source, root, runtime.device, query.weights)
        (done,) = pose_source(source).motions([(take, footage.segments)], cfg, runtime)
        lens = "the calibration's lens" if take.calibration else f"a lens of {cfg.odometry.view_deg:g} degrees, assumed"
        relation = "from the video itself" + (f", {lens}" if source == "odometry" else "")
        yield Estimate(f"{source} of the video", done, (str(footage.path),), relation)


def mixed(motion: Motion, root: TrainedRoot) -> tuple[str, ...]:
    """Return a warning where the query's motion is of another kind than the training data; else nothing."""
    known = origins(root.inputs.table("motions", ORIGIN))
    kind = (motion.source, motion.frame, motion.scale)
    if kind in known:
        return ()
    trained = "; ".join(", ".join(origin) for origin in known)
    return (
        f"MIXED HEAD MOTION: this video's is {', '.join(kind)}, the models and the bank have {trained} (source, axes, "
        "scale). Every row but No-Traj may be misled",
    )


def for_video(name: VideoSourceName, root: TrainedRoot, device: str, weights: str | None) -> TrajectoryConfig:
    """Return the settings of a source that reads the video.

    They are the root's where its models know the source. Else lengths, which such a source cannot measure, are scaled
    to the median step of the root's clips. A precision that a CPU lacks is replaced; `weights` are those of Pi3.
    """
    cfg = root.trajectories
    pi3 = cfg.pi3 if weights is None else cfg.pi3.replace(weights=weights)
    kept = pi3.precision if device.startswith("cuda") else "fp32"
    cfg = cfg.replace(pi3=resolve_precision(pi3.replace(precision=kept), device))
    if name == cfg.source:
        return cfg
    steps = root.inputs.vectors("motions", "motions").reshape(-1, MOTIONS, DOF)[:, :, :3].astype(np.float64)
    median = float(np.median([step_rms(clip) for clip in steps])) if len(steps) else 0.0
    frame = "camera" if cfg.frame == "device" else cfg.frame
    return cfg.replace(source=name, frame=frame, scale="rms", scale_factor=median or None)
