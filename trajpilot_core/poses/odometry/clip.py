"""Visual odometry of one clip with OpenCV: gray frames in, camera poses in upright axes and arbitrary scale out.

Corners are followed through the clip; neighbouring frames give the turns; the frame with the most parallax against the
first says whether the head only turned, and else where to begin (essential matrix or homography); then all frames and
points are refined at once (`bundle`). Long clips are done in windows that overlap. No random choice is left open:
equal frames give equal poses. docs/decisions/poses.md states how good this is.
"""

import functools
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from schemas.poses import OdometryConfig
from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array
from trajpilot_core.poses.lens import Lens, rays
from trajpilot_core.poses.odometry import bundle_adjustment
from trajpilot_core.poses.odometry.bundle_adjustment import Rays, Solution
from trajpilot_core.poses.odometry.tracks import Tracks, follow
from trajpilot_core.poses.odometry.two_view import MIN_RAYS, TwoView, turn, two_view

WINDOW, OVERLAP = 24, 8
"""Frames that are refined at once, and how many of them the next window has too."""
MIN_FRAMES = 3
MAX_RAY_RAD = 1.2
"""Corners further from the optical axis are not used: there is nothing but the lens's rim."""
DARK = 3
"""Gray below this in all frames is outside the lens's picture."""
EDGE = np.ones((9, 9), np.uint8)
"""Corners keep this far from what the lens does not see."""
EXPLAINED = 3.0
"""An observation is explained where it is off by less than this many usual errors."""
TURN_EXPLAINS = 0.9
"""A turn must explain this share of the observations to be believed."""
SHARED = 0.4
"""The frame that is compared with the first must still show this share of the first one's corners."""


class ClipPoses(NamedTuple):
    """Poses of T frames."""

    T_clip_camera: Array
    """(T, 4, 4), upright OpenCV axes, translation in arbitrary units."""
    quality: float
    """Share of the observations that the poses explain, 0 to 1."""
    model: str
    """`turn`, `essential` or `homography`."""


class ClipFault(NamedTuple):
    """Why a clip gives no poses."""

    code: RejectCode
    detail: str


def estimate(frames: NDArray[np.uint8], lens: Lens, aspect: float, cfg: OdometryConfig) -> ClipPoses | ClipFault:
    """Estimate the poses of a clip.

    Args:
        frames: (T, S, S) gray, upright, squashed to a square; no frame twice.
        lens: how they were taken.
        aspect: width over height before they were squashed.
        cfg: settings.
    """
    if len(frames) < MIN_FRAMES:
        return ClipFault(RejectCode.POSES_TOO_SHORT, f"{len(frames)} different frames, {MIN_FRAMES} are needed")
    mask = _usable(frames, lens, aspect)
    tracks = follow(frames, cfg.corners, mask)
    fault = _thin(tracks, len(frames), cfg) or _standing(frames, tracks, cfg)
    if fault is not None:
        return fault
    side = frames.shape[1]
    seen = rays(lens, (tracks.pixel + 0.5) / side, aspect)
    sigma = _pixel_rad(lens, aspect, side) * cfg.sigma_px
    return _in_windows(tracks, seen, len(frames), sigma, cfg)


def _usable(frames: NDArray[np.uint8], lens: Lens, aspect: float) -> NDArray[np.uint8]:
    """Return the (S, S) mask of where corners may lie: what the lens sees, without its rim."""
    wide = _rim(lens, aspect, frames.shape[1])
    dark = (frames.max(axis=0) < DARK).astype(np.uint8)
    speckless = np.asarray(cv2.morphologyEx(dark, cv2.MORPH_OPEN, EDGE)) > 0
    bad = np.asarray(cv2.dilate((wide | speckless).astype(np.uint8), EDGE)) > 0
    return np.where(bad, 0, 255).astype(np.uint8)


@functools.lru_cache(maxsize=8)
def _rim(lens: Lens, aspect: float, side: int) -> NDArray[np.bool_]:
    """Return (S, S): True where the lens looks too far from its axis."""
    y, x = np.mgrid[0:side, 0:side]
    seen = rays(lens, (np.column_stack([x.ravel(), y.ravel()]) + 0.5) / side, aspect)
    wide: NDArray[np.bool_] = (seen[:, 2] < np.cos(MAX_RAY_RAD)).reshape(side, side)
    return wide


def _pixel_rad(lens: Lens, aspect: float, side: int) -> float:
    """Return the angle of one pixel in the middle of the picture."""
    middle = rays(lens, np.array([[0.5, 0.5], [0.5 + 1 / side, 0.5], [0.5, 0.5 + 1 / side]]), aspect)
    return float(np.linalg.norm(middle[1:] - middle[0], axis=1).mean())


def _thin(tracks: Tracks, n_frames: int, cfg: OdometryConfig) -> ClipFault | None:
    """Refuse a clip in which two neighbouring frames share too few corners."""
    shared = [len(_pairs(tracks, at, at + 1)[0]) for at in range(n_frames - 1)]
    worst = int(np.argmin(shared))
    if shared[worst] >= cfg.min_corners:
        return None
    found = int((tracks.frame == worst).sum())
    detail = f"{shared[worst]} of {found} corners of frame {worst} are in the next one, {cfg.min_corners} are needed"
    code = RejectCode.POSES_FEW_CORNERS if found < 2 * cfg.min_corners else RejectCode.POSES_LOST
    return ClipFault(code, detail)


def _standing(frames: NDArray[np.uint8], tracks: Tracks, cfg: OdometryConfig) -> ClipFault | None:
    """Refuse a clip in which nothing moves: such poses say nothing, and a frozen video looks the same."""
    first = _first_seen(tracks)
    moved = np.linalg.norm(tracks.pixel - tracks.pixel[first[tracks.point]], axis=1)
    most = max(float(np.median(moved[tracks.frame == at])) for at in range(1, len(frames)))
    if most >= cfg.min_motion_px:
        return None
    return ClipFault(
        RejectCode.POSES_STATIC, f"corners move by {most:.2f} px at most, min_motion_px is {cfg.min_motion_px:g}"
    )


def _first_seen(tracks: Tracks) -> NDArray[np.intp]:
    """Return the first observation of every point, (P,)."""
    first = np.zeros(tracks.n_points, np.intp)
    first[tracks.point[::-1]] = np.arange(len(tracks.point))[::-1]
    return first


def _pairs(tracks: Tracks, one: int, other: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the observations of the points that both frames show, in one order."""
    a, b = np.flatnonzero(tracks.frame == one), np.flatnonzero(tracks.frame == other)
    _, at_a, at_b = np.intersect1d(tracks.point[a], tracks.point[b], assume_unique=True, return_indices=True)
    return a[at_a], b[at_b]


def _in_windows(tracks: Tracks, seen: Array, n_frames: int, sigma: float, cfg: OdometryConfig) -> ClipPoses | ClipFault:
    """Refine window by window and put them together; a window's scale is that of the one before."""
    poses = np.tile(np.eye(4), (n_frames, 1, 1))
    good, models = [], []
    depth: dict[int, float] = {}
    for first in range(0, max(1, n_frames - OVERLAP), WINDOW - OVERLAP):
        last = min(first + WINDOW, n_frames)
        part, ids = _window(tracks, seen, first, last)
        found, view = _solve(part, last - first, sigma, cfg)
        scale, near = _scale(part, ids, found, depth)
        local = np.tile(np.eye(4), (last - first, 1, 1))
        local[:, :3, :3], local[:, :3, 3] = found.R, found.c * scale
        poses[first:last] = poses[first] @ local
        depth = near
        good.append(_explained(part, found, sigma))
        models.append(view.model)
    if not np.isfinite(poses).all():
        return ClipFault(RejectCode.TRAJ_NOT_FINITE, "the estimate holds NaN or infinity")
    chosen = next((model for model in models if model != "turn"), "turn")
    return ClipPoses(poses, float(np.concatenate(good).mean()), chosen)


def _window(tracks: Tracks, seen: Array, first: int, last: int) -> tuple[Rays, NDArray[np.intp]]:
    """Cut the frames first..last - 1 out; returns their rays and the number of each point in the whole clip."""
    inside = (tracks.frame >= first) & (tracks.frame < last)
    ids, point, counts = np.unique(tracks.point[inside], return_inverse=True, return_counts=True)
    kept = counts[point] > 1
    ids, point = ids[counts > 1], (np.cumsum(counts > 1) - 1)[point[kept]]
    part = Tracks(point, tracks.frame[inside][kept] - first, tracks.pixel[inside][kept], len(ids))
    return Rays(part.point, part.frame, seen[inside][kept], _first_seen(part)), ids


def _solve(part: Rays, n_frames: int, sigma: float, cfg: OdometryConfig) -> tuple[Solution, TwoView]:
    """Solve one window: turns of neighbours, the model, and the refinement from where it says to begin."""
    tracks = Tracks(part.point, part.frame, np.zeros((len(part.point), 2)), len(part.anchor))
    R = np.tile(np.eye(3), (n_frames, 1, 1))
    for at in range(1, n_frames):
        a, b = _pairs(tracks, at - 1, at)
        R[at] = R[at - 1] @ turn(part.ray[a], part.ray[b], sigma)[0].T
    view, far = _widest(part, tracks, n_frames, sigma, cfg)
    start = Solution(R, np.zeros((n_frames, 3)), np.ones(len(part.anchor)), np.zeros(len(part.point)))
    if view.model == "turn":
        turned = bundle_adjustment.refine(part, start, sigma, move=False)
        if _explained(part, turned, sigma).mean() >= TURN_EXPLAINS:
            return turned, view
        view = view._replace(model="essential")
    step = np.clip(np.arange(n_frames) / far, 0, 1)[:, None]
    begun = [start._replace(c=step * (-R.T @ t) * view.parallax) for R, t in view.motions]
    found = [bundle_adjustment.refine(part, one, sigma) for one in (start, *begun)]
    return min(found, key=lambda one: float(np.log1p((one.angle / sigma) ** 2).sum())), view


def _explained(part: Rays, found: Solution, sigma: float) -> NDArray[np.bool_]:
    """Return which observations a solution explains, (M',); those that points hang on are explained by themselves."""
    tested = np.ones(len(part.point), np.bool_)
    tested[part.anchor] = False
    return found.angle[tested] < EXPLAINED * sigma


def _widest(part: Rays, tracks: Tracks, n_frames: int, sigma: float, cfg: OdometryConfig) -> tuple[TwoView, int]:
    """Compare the first frame with those that still show enough of it; the one with most parallax decides."""
    shown = int((part.frame == 0).sum())
    best, far = TwoView("turn", (), 0.0), 1
    for at in range(1, n_frames):
        a, b = _pairs(tracks, 0, at)
        if len(a) < max(MIN_RAYS, SHARED * shown):
            continue
        _, angle = turn(part.ray[a], part.ray[b], sigma)
        if float(np.median(angle)) > best.parallax:
            best, far = TwoView("turn", (), float(np.median(angle))), at
    a, b = _pairs(tracks, 0, far)
    if len(a) < MIN_RAYS:
        return best, far
    return two_view(part.ray[a], part.ray[b], sigma, cfg.min_parallax_px * sigma / cfg.sigma_px), far


def _scale(
    part: Rays, ids: NDArray[np.intp], found: Solution, before: dict[int, float]
) -> tuple[float, dict[int, float]]:
    """Return the factor that gives the window the scale of the one before, and depths for the next window.

    Depths are distances at frame WINDOW - OVERLAP, with which the next window begins.
    """
    anchor = part.anchor
    rho = np.maximum(found.rho, 1e-6)[:, None]
    places = np.einsum("pij,pj->pi", found.R[part.frame[anchor]], part.ray[anchor]) / rho + found.c[part.frame[anchor]]
    here = np.linalg.norm(places, axis=1)
    ratio = [before[key] / d for key, d in zip(ids.tolist(), here.tolist(), strict=True) if key in before and d > 0]
    scale = float(np.median(ratio)) if len(ratio) >= MIN_RAYS else 1.0
    if len(found.R) <= WINDOW - OVERLAP:
        return scale, {}
    ahead = np.linalg.norm(places - found.c[WINDOW - OVERLAP], axis=1) * scale
    return scale, dict(zip(ids.tolist(), ahead.tolist(), strict=True))
