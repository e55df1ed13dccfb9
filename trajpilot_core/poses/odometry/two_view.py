"""What the rays of two frames say about the motion between them: a turn, an essential matrix, or a homography."""

from typing import Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from trajpilot_core.arrays import Array

Model = Literal["turn", "essential", "homography"]
AHEAD = 0.2
"""Rays with a smaller z are left out: their place in the plane z = 1 is far out."""
MIN_RAYS = 8
STILL, IN_FRONT = 1e-9, 0.9
"""Shortest translation of a plane's motion, and the share of its points that must lie in front."""
PLANAR = 0.9
"""The homography is used where it explains at least this share of what the essential matrix explains."""


class TwoView(NamedTuple):
    """Motion from frame 0 to frame 1: x_1 = R x_0 + t."""

    model: Model
    motions: tuple[tuple[Array, Array], ...]
    """R (3, 3) and unit t (3,) that fit: none for a turn, up to two for a plane, which two views alone leave open."""
    parallax: float
    """Median angle that a turn alone leaves, radians."""


def turn(b0: Array, b1: Array, sigma: float, rounds: int = 6) -> tuple[Array, Array]:
    """Fit b1 = R b0 to unit rays (N, 3) with Geman-McClure weights; returns R (3, 3) and the angles left, (N,)."""
    weight, R, angle = np.ones(len(b0)), np.eye(3), np.zeros(len(b0))
    for at in range(rounds):
        U, _, Vt = np.linalg.svd((b1 * weight[:, None]).T @ b0)
        R = U @ np.diag([1.0, 1.0, np.sign(np.linalg.det(U @ Vt))]) @ Vt
        angle = np.linalg.norm(b1 - b0 @ R.T, axis=1)
        scale = max(sigma, 1.5 * float(np.median(angle))) if at < rounds - 1 else sigma
        weight = 1 / (1 + (angle / scale) ** 2) ** 2
    return R, angle


def two_view(b0: Array, b1: Array, sigma: float, min_parallax: float) -> TwoView:
    """Choose the model for N rays seen in two frames.

    A turn where it leaves less parallax than `min_parallax`; else a homography where it explains nearly as many rays as
    the essential matrix does (a plane), else the essential matrix. Both are sought by RANSAC with a fixed seed.

    Args:
        b0: (N, 3) unit rays in the first frame.
        b1: (N, 3) in the second.
        sigma: angle that counts as a usual error, radians.
        min_parallax: radians.
    """
    _, angle = turn(b0, b1, sigma)
    parallax = float(np.median(angle)) if len(angle) else 0.0
    still = TwoView("turn", (), parallax)
    ahead = (b0[:, 2] > AHEAD) & (b1[:, 2] > AHEAD)
    if parallax < min_parallax or ahead.sum() < MIN_RAYS:
        return still
    x0, x1 = (b[ahead, :2] / b[ahead, 2:] for b in (b0, b1))
    E, inside = cv2.findEssentialMat(x0, x1, np.eye(3), cv2.RANSAC, 0.999, 2 * sigma)
    if E is None or E.shape != (3, 3):
        return still
    H, planar = cv2.findHomography(x0, x1, cv2.RANSAC, 2 * sigma)
    if H is not None and planar.sum() >= PLANAR * inside.sum():
        found = _plane_motions(np.asarray(H, np.float64), x0, planar.ravel() > 0)
        if found:
            return TwoView("homography", found, parallax)
    _, R, t, _ = cv2.recoverPose(E, x0, x1, np.eye(3), mask=inside.copy())
    return TwoView("essential", ((np.asarray(R, np.float64), np.asarray(t, np.float64).ravel()),), parallax)


def _plane_motions(H: Array, x0: Array, inside: NDArray[np.bool_]) -> tuple[tuple[Array, Array], ...]:
    """Decompose a homography: the motions that keep its points in front of the first camera."""
    _, *parts = cv2.decomposeHomographyMat(H, np.eye(3))
    points = np.column_stack([x0[inside], np.ones(int(inside.sum()))])
    good = []
    for R, t, normal in zip(*(np.asarray(part, np.float64) for part in parts), strict=True):
        length = float(np.linalg.norm(t))
        if length > STILL and len(points) and (points @ normal.ravel() > 0).mean() > IN_FRONT:
            good.append((R, t.ravel() / length))
    return tuple(good)
