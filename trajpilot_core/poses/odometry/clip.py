"""Visual odometry of one clip: gray frames in, camera poses in upright axes and arbitrary scale out.

Corners are tracked through the clip. Frame by frame, a rotation is fitted to the corners seen in earlier frames; where
it explains them, the head only rotated. Else poses and points are refined (`bundle_adjustment`). Nothing is random:
equal frames give equal poses. Accuracy: docs/decisions/poses.md.
"""

import functools
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from schemas.poses import OdometryConfig
from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array, Image
from trajpilot_core.poses.geometry import Lens, PoseFault, rays
from trajpilot_core.poses.odometry.bundle_adjustment import Observations, Solution, angles, refine

Floats = NDArray[np.float32]

WINDOW_PX, LEVELS, CORNER_QUALITY = 15, 3, 0.01
BACK_PX = 0.7
"""Largest distance of a point from its start after tracking to the next frame and back."""
REFILL = 0.7
"""New points are detected below this share of the wanted number."""
MIN_FRAMES = 3
WINDOW, STRIDE = 24, 12
"""Frames that are refined together before the whole clip is, and the step of this window."""
COARSE_GAIN, FINE_GAIN = 1e-2, 1e-4
"""Smallest relative gain in cost at which the refinement of a window, and of the clip, goes on."""
MAX_RAY_RAD = 1.2
"""Corners further from the optical axis are on the rim of the lens and not used."""
DARK = 3
"""Pixels below this gray value in all frames are outside the picture of the lens."""
EDGE = np.ones((9, 9), np.uint8)
"""Corners keep this distance from what the lens does not see."""
EXPLAINED = 3.0
"""An observation is explained if its error is below this many sigmas."""
TURN_ROUNDS = 6


class Tracks(NamedTuple):
    """M observations, point by point, each in order of the frames; a point is seen in neighbouring frames only."""

    point: NDArray[np.intp]
    """(M,)."""
    frame: NDArray[np.intp]
    """(M,)."""
    pixel: Array
    """(M, 2) x, y."""


def follow(frames: Image, wanted: int, mask: Image) -> Tracks:
    """Detect corners and track them (pyramidal Lucas-Kanade, forward and back); lost ones are replaced.

    Args:
        frames: (T, S, S) gray.
        wanted: corners that are kept in view.
        mask: (S, S), 0 where corners are not allowed.
    """
    ids, places = np.zeros(0, np.intp), np.zeros((0, 2), np.float32)
    seen: list[tuple[NDArray[np.intp], Floats]] = []
    n_points = 0
    for at, frame in enumerate(frames):
        if len(ids):
            kept, places = _step(frames[at - 1], frame, places, mask)
            ids = ids[kept]
        if len(ids) < REFILL * wanted:
            apart, free = max(4, len(mask) // 40), mask.copy()
            for x, y in np.rint(places).astype(int).tolist():
                cv2.circle(free, (x, y), apart, 0, -1)
            corners = cv2.goodFeaturesToTrack(frame, wanted - len(ids), CORNER_QUALITY, apart, mask=free)
            fresh = np.asarray([] if corners is None else corners, np.float32).reshape(-1, 2)
            ids = np.concatenate([ids, np.arange(n_points, n_points + len(fresh))])
            places = np.concatenate([places, fresh])
            n_points += len(fresh)
        seen.append((ids, places))
    point = np.concatenate([ids for ids, _ in seen])
    frame_of = np.repeat(np.arange(len(frames)), [len(ids) for ids, _ in seen])
    order = np.argsort(point, kind="stable")
    return Tracks(point[order], frame_of[order], np.concatenate([p for _, p in seen])[order].astype(np.float64))


def _step(before: Image, after: Image, places: Floats, mask: Image) -> tuple[NDArray[np.bool_], Floats]:
    """Track points (N, 2) to the next frame; return which are kept, (N,), and the positions of those."""
    moved, is_tracked = _flow(before, after, places)
    back, returned = _flow(after, before, moved)
    near = np.linalg.norm(back - places, axis=1) < BACK_PX
    inside = ((moved >= 0) & (moved <= len(mask) - 1)).all(axis=1)
    cell = np.clip(np.rint(moved), 0, len(mask) - 1).astype(np.intp)
    kept = is_tracked & returned & near & inside & (mask[cell[:, 1], cell[:, 0]] > 0)
    return kept, moved[kept]


def _flow(before: Image, after: Image, places: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the new positions of points (N, 2), and whether they were found, (N,)."""
    moved, is_tracked, _ = cv2.calcOpticalFlowPyrLK(
        before, after, places, np.empty_like(places), winSize=(WINDOW_PX, WINDOW_PX), maxLevel=LEVELS
    )
    return np.asarray(moved, np.float32), np.asarray(is_tracked).ravel() > 0


class ClipPoses(NamedTuple):
    """Poses of T frames."""

    T_clip_camera: Array
    """(T, 4, 4), upright OpenCV axes, translation in arbitrary units."""
    quality: float
    """Share of the observations that the poses explain, 0 to 1."""


def estimate(frames: Image, lens: Lens, aspect: float, cfg: OdometryConfig) -> ClipPoses | PoseFault:
    """Estimate the poses of a clip.

    Args:
        frames: (T, S, S) gray, upright, squashed to a square; no frame twice.
        aspect: width over height before they were squashed.
    """
    n_frames, side = len(frames), frames.shape[1]
    if n_frames < MIN_FRAMES:
        return PoseFault(RejectCode.POSES_TOO_SHORT, f"{n_frames} different frames, {MIN_FRAMES} are needed")
    dark = (frames.max(axis=0) < DARK).astype(np.uint8)
    speckless = np.asarray(cv2.morphologyEx(dark, cv2.MORPH_OPEN, EDGE)) > 0
    unseen = np.asarray(cv2.dilate((_rim(lens, aspect, side) | speckless).astype(np.uint8), EDGE)) > 0
    tracks = follow(frames, cfg.corners, np.where(unseen, 0, 255).astype(np.uint8))
    is_first = np.diff(tracks.point, prepend=-1) > 0
    later, first = np.flatnonzero(~is_first), np.flatnonzero(is_first)[tracks.point]
    fault = _tracking_fault(tracks, first, later, n_frames, cfg)
    if fault is not None:
        return fault
    ray = rays(lens, (tracks.pixel + 0.5) / side, aspect)
    points, point = np.unique(tracks.point[later], return_inverse=True)
    start_frame, start_ray = tracks.frame[first[later]], ray[first[later]]
    seen = Observations(point, tracks.frame[later], ray[later], start_frame, start_ray)
    middle = rays(lens, np.array([[0.5, 0.5], [0.5 + 1 / side, 0.5], [0.5, 0.5 + 1 / side]]), aspect)
    pixel_rad = float(np.linalg.norm(middle[1:] - middle[0], axis=1).mean())
    sigma = pixel_rad * cfg.sigma_px
    R, parallax = _turns(seen, n_frames, sigma)
    solution = Solution(R, np.zeros((n_frames, 3)), np.ones(len(points)))
    if parallax >= cfg.min_parallax_px * pixel_rad:
        solution = _refined(seen, solution, sigma)
    poses = np.tile(np.eye(4), (n_frames, 1, 1))
    poses[:, :3, :3], poses[:, :3, 3] = solution.R, solution.c
    if not np.isfinite(poses).all():
        return PoseFault(RejectCode.TRAJ_NOT_FINITE, "the estimate contains NaN or infinity")
    return ClipPoses(poses, float((angles(seen, solution) < EXPLAINED * sigma).mean()))


@functools.lru_cache(maxsize=8)
def _rim(lens: Lens, aspect: float, side: int) -> NDArray[np.bool_]:
    """Return (S, S): True where the lens looks too far from its axis."""
    y, x = np.mgrid[0:side, 0:side]
    seen = rays(lens, (np.column_stack([x.ravel(), y.ravel()]) + 0.5) / side, aspect)
    wide: NDArray[np.bool_] = (seen[:, 2] < np.cos(MAX_RAY_RAD)).reshape(side, side)
    return wide


def _tracking_fault(
    tracks: Tracks, first: NDArray[np.intp], later: NDArray[np.intp], n_frames: int, cfg: OdometryConfig
) -> PoseFault | None:
    """Return the fault of a clip with too few corners shared by neighbouring frames, or without motion (frozen video).

    Args:
        first: (M,) first observation of the same point.
        later: observations other than the first of their point.
    """
    frame = tracks.frame[later]
    shared = np.bincount(frame, minlength=n_frames)[1:]
    worst = int(shared.argmin())
    if shared[worst] < cfg.min_corners:
        detected = int((tracks.frame == worst).sum())
        code = RejectCode.POSES_FEW_CORNERS if detected < 2 * cfg.min_corners else RejectCode.POSES_LOST
        counted = f"{shared[worst]} of {detected} corners of frame {worst} are in the next one"
        return PoseFault(code, f"{counted}, {cfg.min_corners} are needed")
    moved = np.linalg.norm(tracks.pixel[later] - tracks.pixel[first[later]], axis=1)
    most = max(float(np.median(moved[frame == at])) for at in range(1, n_frames))
    if most < cfg.min_motion_px:
        limit = f"min_motion_px is {cfg.min_motion_px:g}"
        return PoseFault(RejectCode.POSES_STATIC, f"corners move by {most:.2f} px at most, {limit}")
    return None


def _turns(seen: Observations, n_frames: int, sigma: float) -> tuple[Array, float]:
    """Fit a rotation to each frame with equal centres, with Geman-McClure weights.

    Returns R (T, 3, 3) and the largest median residual angle.
    """
    R, parallax = np.tile(np.eye(3), (n_frames, 1, 1)), 0.0
    for at in range(1, n_frames):
        shown = seen.frame == at
        ahead = np.einsum("mij,mj->mi", R[seen.first_frame[shown]], seen.first_ray[shown])
        rays_at = seen.ray[shown]
        weight, angle = np.ones(len(ahead)), np.zeros(len(ahead))
        for turn in range(TURN_ROUNDS):
            U, _, Vt = np.linalg.svd((ahead * weight[:, None]).T @ rays_at)
            R[at] = U @ np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))]) @ Vt
            angle = np.linalg.norm(ahead - rays_at @ R[at].T, axis=1)
            scale = max(sigma, 1.5 * float(np.median(angle))) if turn < TURN_ROUNDS - 1 else sigma
            weight = 1 / (1 + (angle / scale) ** 2) ** 2
        parallax = max(parallax, float(np.median(angle)))
    return R, parallax


def _refined(seen: Observations, solution: Solution, sigma: float) -> Solution:
    """Refine window by window, later frames starting from the last refined pose; then the whole clip."""
    n_frames = len(solution.R)
    for end in range(WINDOW, n_frames, STRIDE):
        free = slice(max(1, end - WINDOW), end)
        R, c, rho = refine(seen.of_frames(free), solution, free, sigma, COARSE_GAIN)
        R[end:] = R[end - 1] @ solution.R[end - 1].T @ solution.R[end:]
        c[end:] = c[end - 1]
        solution = Solution(R, c, rho)
    return refine(seen, solution, slice(1, n_frames), sigma, FINE_GAIN)
