"""Camera poses of a clip from rays: frames and points at once, weighted least squares on the angle.

Shapes: M observations, T frames, P points. A point is on the ray of its first observation at inverse depth `rho`; the
pose of frame k is T_clip_k with rotation R_k and centre c_k. The predicted ray is d = R_k^T (R_a b + rho (c_a - c_k)),
which is well defined at rho = 0. Only the damping keeps the scale near its initial value.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import LinAlgError, solve
from scipy.spatial.transform import Rotation

from trajpilot_core.arrays import Array

MAX_RHO = 20.0
STEPS, RETRIES = 15, 4
"""Largest number of steps, and of dampings tried per step."""


class Observations(NamedTuple):
    """M observations of points that an earlier frame showed first."""

    point: NDArray[np.intp]
    """(M,) 0..P-1."""
    frame: NDArray[np.intp]
    """(M,)."""
    ray: Array
    """(M, 3) unit."""
    first_frame: NDArray[np.intp]
    """(M,) frame that showed the point first, earlier than `frame`."""
    first_ray: Array
    """(M, 3) unit, in that frame."""

    def of_frames(self, frames: slice) -> "Observations":
        """Return those of the frames start..stop - 1."""
        shown = (self.frame >= frames.start) & (self.frame < frames.stop)
        return Observations._make(part[shown] for part in self)


class Solution(NamedTuple):
    """Poses and structure of a clip."""

    R: Array
    """(T, 3, 3) rotation of T_clip_frame."""
    c: Array
    """(T, 3) camera centres, arbitrary scale."""
    rho: Array
    """(P,) inverse depths."""


def refine(seen: Observations, start: Solution, free: slice, sigma: float, min_gain: float) -> Solution:
    """Improve poses and depths by damped Gauss-Newton with Cauchy weights.

    Args:
        free: frames whose poses may change; frame 0 is not among them.
        sigma: angle that counts as a usual error, radians.
        min_gain: share of the cost that a step must gain for another one to follow.
    """
    current, cost, damping = start, _cost(seen, start, sigma), 1e-4
    for _ in range(STEPS):
        A, g = _normal_equations(seen, current, sigma)
        for _ in range(RETRIES):
            candidate = _stepped(current, A, g, free, damping)
            candidate_cost = _cost(seen, candidate, sigma)
            if candidate_cost < cost:
                break
            damping *= 10
        else:
            return current
        gain, current, cost = 1 - candidate_cost / cost, candidate, candidate_cost
        damping = max(damping / 5, 1e-7)
        if gain < min_gain:
            break
    return current


def angles(seen: Observations, at: Solution) -> Array:
    """Return the (M,) angles between seen and predicted rays, radians."""
    d = _predicted(seen, at)[0]
    return np.asarray(np.linalg.norm(d / np.linalg.norm(d, axis=1, keepdims=True) - seen.ray, axis=1))


def _cost(seen: Observations, at: Solution, sigma: float) -> float:
    """Return the Cauchy cost."""
    return float(np.log1p((angles(seen, at) / sigma) ** 2).sum())


def _predicted(seen: Observations, at: Solution) -> tuple[Array, Array, Array, Array]:
    """Return per observation: d (M, 3), R_k^T (c_a - c_k) (M, 3), R_k^T (M, 3, 3), R_k^T R_a (M, 3, 3)."""
    back = at.R[seen.frame].transpose(0, 2, 1)
    across = back @ at.R[seen.first_frame]
    moved = np.einsum("mij,mj->mi", back, at.c[seen.first_frame] - at.c[seen.frame])
    d = np.einsum("mij,mj->mi", across, seen.first_ray) + at.rho[seen.point][:, None] * moved
    return d, moved, back, across


def _normal_equations(seen: Observations, at: Solution, sigma: float) -> tuple[sparse.csr_array, Array]:
    """Linearise around `at`: matrix and right side of 6 T unknowns of frames (turn, centre) and P of points."""
    d, moved, back, across = _predicted(seen, at)
    length = np.linalg.norm(d, axis=1)
    b = d / length[:, None]
    flat = (np.eye(3) - b[:, :, None] * b[:, None, :]) / length[:, None, None]
    shift = at.rho[seen.point][:, None, None] * back
    blocks = [_cross(d), -shift, -across @ _cross(seen.first_ray), shift, moved[:, :, None]]
    J = flat @ np.concatenate(blocks, axis=2)
    six, n_frames = np.arange(6), len(at.R)
    of_frames = [6 * k[:, None] + six for k in (seen.frame, seen.first_frame)]
    columns = np.concatenate([*of_frames, 6 * n_frames + seen.point[:, None]], axis=1)
    root = 1 / np.sqrt(1 + np.sum((seen.ray - b) ** 2, axis=1) / sigma**2)
    cells = np.repeat(columns, 3, axis=0).ravel()
    shape = (3 * len(d), 6 * n_frames + len(at.rho))
    matrix = sparse.csr_array(((J * root[:, None, None]).ravel(), cells, np.arange(shape[0] + 1) * 13), shape=shape)
    residual = ((seen.ray - b) * root[:, None]).ravel()
    return sparse.csr_array(matrix.T @ matrix), np.asarray(matrix.T @ residual, np.float64)


def _stepped(current: Solution, A: sparse.csr_array, g: Array, free: slice, damping: float) -> Solution:
    """Solve for one step (points eliminated) and apply it."""
    size, poses = 6 * len(current.R), slice(6 * free.start, 6 * free.stop)
    diagonal = A.diagonal()
    damped = diagonal * (1 + damping) + damping * (diagonal[poses].mean() + 1e-12)
    W, inverse = sparse.csr_array(A[poses, size:]), 1 / damped[size:]
    H = sparse.csr_array(A[poses, poses] - W @ sparse.diags_array(inverse) @ W.T).toarray()
    right = g[poses] - np.asarray(W @ (inverse * g[size:]), np.float64)
    try:
        step = solve(H + np.diag((damped - diagonal)[poses]), right, assume_a="pos")
    except LinAlgError:
        return current
    rho = np.clip(current.rho + inverse * (g[size:] - np.asarray(W.T @ step, np.float64)), 0.0, MAX_RHO)
    R, c = current.R.copy(), current.c.copy()
    R[free] = R[free] @ Rotation.from_rotvec(step.reshape(-1, 6)[:, :3]).as_matrix()
    c[free] += step.reshape(-1, 6)[:, 3:]
    return Solution(R, c, rho)


def _cross(v: Array) -> Array:
    """Return (N, 3, 3) matrices with [v]x w = v x w."""
    return np.asarray(np.cross(v[:, None, :], np.eye(3)).transpose(0, 2, 1))
