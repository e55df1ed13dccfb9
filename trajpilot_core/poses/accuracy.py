"""Errors of estimated head motion, clip by clip."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from schemas.annotation import KNOTS, Take
from schemas.poses import TrajectoryConfig
from trajpilot_core.arrays import Array
from trajpilot_core.errors import TakeFault
from trajpilot_core.poses import geometry
from trajpilot_core.poses.geometry import Poses
from trajpilot_core.poses.sources.take import poses


class ClipError(NamedTuple):
    """One clip of 17 poses against the true ones."""

    rotation_deg: float
    """Largest angle between estimated and true rotation since the first knot."""
    position_m: float
    """Root mean square distance of the positions after the best rotation, translation and scale (Sim(3))."""
    spread_m: float
    """Root mean square distance of the true positions from their mean: the upper bound of `position_m`."""
    turned_deg: float
    """Largest true angle since the first knot."""


def joined(motions: Array) -> Poses:
    """Return the 17 poses of (16, 6) motions, starting at the identity."""
    path = Poses(np.array([[0.0, 0.0, 0.0, 1.0]]), np.zeros((1, 3)))
    for step in motions:
        last = geometry.take(path, np.array([-1]))
        ahead = geometry.compose(last, Poses(geometry.exp_rotation(step[None, 3:]), step[None, :3]))
        path = Poses(np.vstack([path.q_xyzw, ahead.q_xyzw]), np.vstack([path.t_m, ahead.t_m]))
    return path


def clip_error(estimated: Poses, true: Poses) -> ClipError:
    """Compare 17 estimated poses with the true ones, both T_any_camera in the same camera axes."""
    estimated, true = _since_first(estimated), _since_first(true)
    off = geometry.log_rotation(geometry.compose(geometry.invert(true), estimated).q_xyzw)
    return ClipError(
        rotation_deg=_largest_deg(off),
        position_m=sim3_residual_m(estimated.t_m, true.t_m),
        spread_m=float(np.sqrt(np.sum((true.t_m - true.t_m.mean(axis=0)) ** 2, axis=1).mean())),
        turned_deg=_largest_deg(geometry.log_rotation(true.q_xyzw)),
    )


def _since_first(path: Poses) -> Poses:
    """Return the poses in the frame of the first one."""
    return geometry.compose(geometry.invert(geometry.take(path, np.zeros(1, np.intp))), path)


def _largest_deg(vectors: Array) -> float:
    return float(np.rad2deg(np.linalg.norm(vectors, axis=1).max()))


def sim3_residual_m(estimated: Array, true_m: Array) -> float:
    """Return the root mean square distance left by the best similarity of (N, 3) points to (N, 3) true ones.

    Source: Umeyama, Least-squares estimation of transformation parameters between two point patterns, 1991.
    """
    a, b = estimated - estimated.mean(axis=0), true_m - true_m.mean(axis=0)
    U, S, Vt = np.linalg.svd(b.T @ a)
    D = np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))])
    size = float(np.sum(a**2))
    scale = float((S * np.diag(D)).sum()) / size if size > 0 else 0.0
    return float(np.sqrt(np.sum((b - scale * a @ (U @ D @ Vt).T) ** 2, axis=1).mean()))


def take_errors(
    data_root: str, take: Take, spans_s: Sequence[tuple[float, float]], motions: Array, cfg: TrajectoryConfig
) -> list[ClipError | None]:
    """Compare estimated motions of one take with its pose file.

    Args:
        data_root: corpus root, a folder or a URL.
        take: a take with a pose file, whose video has an even rate.
        spans_s: start and end of the segments.
        motions: (S, 16, 6) of the same segments, estimated from its video.
        cfg: settings of the estimate; its limits on gaps also apply to the truth.

    Returns:
        One error per segment; None where the pose file is unusable.
    """
    true_cfg = cfg.replace(source="aria", fallback=None)
    errors: list[ClipError | None] = []
    for (start_s, end_s), clip in zip(spans_s, motions, strict=True):
        # the estimate begins and ends with the frames nearest to the first and last wanted time
        first, last = (round(at * take.fps) / take.fps for at in (start_s, end_s - 1 / take.fps))
        try:
            true = poses(data_root, take, np.linspace(first, last, KNOTS), true_cfg)
        except TakeFault:
            errors.append(None)
            continue
        errors.append(clip_error(joined(clip.astype(float)), true))
    return errors
