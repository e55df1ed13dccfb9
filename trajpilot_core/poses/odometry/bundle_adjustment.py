"""Camera poses of a clip from rays: all frames and points at once, weighted least squares on the angle.

Shapes: M observations, T frames, P points. A point lies on the ray of its first observation at inverse depth `rho`; the
pose of frame k is T_clip_k with rotation R_k and centre c_k, both those of frame 0 being fixed. What is predicted is
d = R_k^T (R_a b + rho (c_a - c_k)), which is well defined at rho = 0, so that a head that only turns needs no case of
its own. The scale is free: the median inverse depth is kept at 1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, solve

from trajpilot_core.arrays import Array

Index = NDArray[np.intp]
MAX_RHO = 20.0


class Rays(NamedTuple):
    """M observations of P points."""

    point: Index
    """(M,)."""
    frame: Index
    """(M,)."""
    ray: Array
    """(M, 3) unit."""
    anchor: Index
    """(P,) observation that a point hangs on, its first."""


class Solution(NamedTuple):
    """Poses and structure of a clip."""

    R: Array
    """(T, 3, 3) rotation of T_clip_frame."""
    c: Array
    """(T, 3) camera centres, arbitrary scale."""
    rho: Array
    """(P,) inverse depths."""
    angle: Array
    """(M,) what is left between seen and predicted ray, radians."""


def refine(rays: Rays, start: Solution, sigma: float, turns: int = 15, move: bool = True) -> Solution:
    """Improve poses and depths by damped Gauss-Newton with Cauchy weights.

    Args:
        rays: what was seen.
        start: where to begin; its `angle` is not read.
        sigma: angle that counts as a usual error, radians.
        turns: most steps.
        move: False: the centres stay (a head that only turns).
    """
    now = scored(rays, start)
    cost, damping = _cost(now.angle, sigma), 1e-4
    for _ in range(turns):
        system = _normal_equations(rays, now, sigma)
        better = False
        for _ in range(4):
            tried = scored(rays, _stepped(now, system, damping, move))
            new = _cost(tried.angle, sigma)
            if new < cost:
                better = True
                break
            damping *= 10
        if not better:
            break
        gained, now, cost, damping = 1 - new / cost, tried, new, max(damping / 5, 1e-7)
        if gained < 1e-4:
            break
    return now


def scored(rays: Rays, at: Solution) -> Solution:
    """Return the solution with the angles that it leaves."""
    _, _, d, _ = _predicted(rays, at)
    b = d / np.linalg.norm(d, axis=1, keepdims=True)
    return at._replace(angle=np.linalg.norm(b - rays.ray, axis=1))


def _cost(angle: Array, sigma: float) -> float:
    """Cauchy cost."""
    return float(np.log1p((angle / sigma) ** 2).sum())


def _predicted(rays: Rays, at: Solution) -> tuple[Array, Array, Array, Array]:
    """Return per observation: R_k^T (M, 3, 3), R_k^T R_a (M, 3, 3), d (M, 3), R_k^T (c_a - c_k) (M, 3)."""
    anchor = rays.anchor[rays.point]
    a, k = rays.frame[anchor], rays.frame
    Rk_T = at.R[k].transpose(0, 2, 1)
    turned = Rk_T @ at.R[a]
    moved = np.einsum("mij,mj->mi", Rk_T, at.c[a] - at.c[k])
    d = np.einsum("mij,mj->mi", turned, rays.ray[anchor]) + at.rho[rays.point][:, None] * moved
    return Rk_T, turned, d, moved


class _System(NamedTuple):
    """Normal equations: frames (6 T), points (P), and what joins them."""

    H: Array
    """(6 T, 6 T)."""
    g: Array
    """(6 T,)."""
    W: Array
    """(6 T, P)."""
    h: Array
    """(P,)."""
    b: Array
    """(P,)."""


def _normal_equations(rays: Rays, at: Solution, sigma: float) -> _System:
    """Linearise around `at`; observations that a point hangs on say nothing and drop out by themselves."""
    Rk_T, turned, d, moved = _predicted(rays, at)
    anchor = rays.anchor[rays.point]
    a, k, rho = rays.frame[anchor], rays.frame, at.rho[rays.point]
    length = np.linalg.norm(d, axis=1)
    b = d / length[:, None]
    flat = (np.eye(3) - b[:, :, None] * b[:, None, :]) / length[:, None, None]
    weight = 1 / (1 + (at.angle / sigma) ** 2)
    shift = rho[:, None, None] * Rk_T
    own = flat @ np.concatenate([_cross(d), -shift], axis=2)
    first = flat @ np.concatenate([-turned @ _cross(rays.ray[anchor]), shift], axis=2)
    depth = np.einsum("mij,mj->mi", flat, moved)
    own[k == a], first[k == a] = 0.0, 0.0
    residual = rays.ray - b
    n_frames, n_points = len(at.R), len(at.rho)
    w_own, w_first = ((J * weight[:, None, None]).transpose(0, 2, 1) for J in (own, first))
    mixed = _summed(w_own @ first, k * n_frames + a, n_frames**2).reshape(n_frames, n_frames, 6, 6)
    H = mixed + mixed.transpose(1, 0, 3, 2)
    every = np.arange(n_frames)
    H[every, every] += _summed(w_own @ own, k, n_frames) + _summed(w_first @ first, a, n_frames)
    g, W = np.zeros((n_frames, 6)), np.zeros((n_points * n_frames, 6))
    for rows, wJ in ((k, w_own), (a, w_first)):
        g += _summed(np.einsum("mij,mj->mi", wJ, residual), rows, n_frames)
        W += _summed(np.einsum("mij,mj->mi", wJ, depth), rays.point * n_frames + rows, n_points * n_frames)
    h = _summed(weight * np.sum(depth**2, axis=1), rays.point, n_points)
    right = _summed(weight * np.sum(depth * residual, axis=1), rays.point, n_points)
    size = 6 * n_frames
    return _System(H.transpose(0, 2, 1, 3).reshape(size, size), g.reshape(size), W.reshape(n_points, size).T, h, right)


def _summed(values: Array, rows: Index, n_rows: int) -> Array:
    """Add up (M, ...) values that belong to one row, (n_rows, ...)."""
    width = int(np.prod(values.shape[1:]))
    cells = (rows[:, None] * width + np.arange(width)).ravel()
    added = np.bincount(cells, values.ravel(), n_rows * width)
    return np.asarray(added, np.float64).reshape(n_rows, *values.shape[1:])


def _stepped(now: Solution, system: _System, damping: float, move: bool) -> Solution:
    """Solve for one step (points eliminated) and apply it; frame 0 stays."""
    diagonal = np.diag(system.H)
    floor = damping * (diagonal.mean() + 1e-12)
    inverse = 1 / (system.h * (1 + damping) + floor)
    H = system.H + np.diag(damping * diagonal + floor) - (system.W * inverse) @ system.W.T
    g = system.g - system.W @ (inverse * system.b)
    moving = np.ones((len(now.R), 6), np.bool_)
    moving[0] = False
    if not move:
        moving[:, 3:] = False
    free = moving.ravel()
    step = np.zeros(len(g))
    try:
        step[free] = solve(H[np.ix_(free, free)], g[free], assume_a="pos")
    except LinAlgError:
        return now
    d_rho = inverse * (system.b - system.W.T @ step)
    parts = step.reshape(-1, 6)
    rho = np.clip(now.rho + (d_rho if move else 0.0), 0.0, MAX_RHO)
    scale = float(np.median(rho)) if move else 1.0
    scale = scale if scale > 1e-3 else 1.0
    return Solution(now.R @ rotations(parts[:, :3]), (now.c + parts[:, 3:]) * scale, rho / scale, now.angle)


def rotations(vectors: Array) -> Array:
    """Return the (N, 3, 3) rotation matrices of (N, 3) rotation vectors, radians."""
    angle = np.linalg.norm(vectors, axis=1)[:, None, None]
    K = _cross(vectors)
    sine, cosine = np.sinc(angle / np.pi), 0.5 * np.sinc(angle / 2 / np.pi) ** 2
    turned: Array = np.eye(3) + sine * K + cosine * (K @ K)
    return turned


def _cross(v: Array) -> Array:
    """Return (N, 3, 3) matrices with [v]x w = v x w."""
    zero = np.zeros(len(v))
    x, y, z = v.T
    return np.stack([zero, -z, y, z, zero, -x, -y, x, zero], axis=1).reshape(-1, 3, 3)
