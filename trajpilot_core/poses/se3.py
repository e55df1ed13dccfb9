"""Rigid motions in bulk.

Conventions: `T_world_camera` maps camera coordinates to world coordinates, x_world = R x_camera + t; composition reads
`T_world_camera = T_world_device * T_device_camera`. Quaternions are Hamilton, unit, order x, y, z, w, and carry the
order in their name (`q_xyzw`). Lengths are metres, rotation vectors radians. N is any number of motions, all handled
in one call; every array is float64.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from trajpilot_core.arrays import Array


class Poses(NamedTuple):
    """N rigid motions."""

    q_xyzw: Array
    """(N, 4) unit quaternions."""
    t_m: Array
    """(N, 3) translations, metres."""


def compose(a: Poses, b: Poses) -> Poses:
    """Return a * b, first b then a: (N,) with (N,), or either of them (1,), which is then used for all."""
    rotation_a = Rotation.from_quat(a.q_xyzw)
    q_xyzw = (rotation_a * Rotation.from_quat(b.q_xyzw)).as_quat()
    return Poses(q_xyzw, rotation_a.apply(b.t_m) + a.t_m)


def invert(a: Poses) -> Poses:
    """Return the (N,) inverse motions."""
    inverse = Rotation.from_quat(a.q_xyzw).inv()
    return Poses(inverse.as_quat(), -inverse.apply(a.t_m))


def exp_rotation(rotation_vector_rad: Array) -> Array:
    """Return the (N, 4) quaternions of (N, 3) rotation vectors, radians."""
    q_xyzw: Array = Rotation.from_rotvec(rotation_vector_rad).as_quat()
    return q_xyzw


def log_rotation(q_xyzw: Array) -> Array:
    """Return the (N, 3) rotation vectors, radians, angle in [0, pi], of (N, 4) quaternions."""
    rotation_vector_rad: Array = Rotation.from_quat(q_xyzw).as_rotvec()
    return rotation_vector_rad


def normalise(q_xyzw: Array) -> Array:
    """Scale (N, 4) quaternions to unit norm; none may be zero."""
    scaled: Array = q_xyzw / np.linalg.norm(q_xyzw, axis=-1, keepdims=True)
    return scaled


def slerp(q0_xyzw: Array, q1_xyzw: Array, fraction: Array) -> Array:
    """Rotate from q0 to q1 along the shorter arc.

    Args:
        q0_xyzw: (N, 4) start, nearly unit.
        q1_xyzw: (N, 4) end, nearly unit.
        fraction: (N,) how far, 0 to 1.

    Returns:
        (N, 4) unit quaternions.
    """
    q0, q1 = normalise(q0_xyzw), normalise(q1_xyzw)
    q1 = np.where(np.sum(q0 * q1, axis=1, keepdims=True) < 0, -q1, q1)
    # arccos of the dot product would lose half of the digits of a small angle
    angle = 2 * np.arctan2(np.linalg.norm(q1 - q0, axis=1), np.linalg.norm(q1 + q0, axis=1))
    return normalise(_sine_ratio(1 - fraction, angle)[:, None] * q0 + _sine_ratio(fraction, angle)[:, None] * q1)


def _sine_ratio(fraction: Array, angle: Array) -> Array:
    """Return sin(fraction * angle) / sin(angle), (N,), which is `fraction` where the angle is 0."""
    ratio: Array = fraction * np.sinc(fraction * angle / np.pi) / np.sinc(angle / np.pi)
    return ratio


def interpolate(a: Poses, b: Poses, fraction: Array) -> Poses:
    """Return N motions between a and b: lerp of the position, slerp of the rotation; fraction of shape (N,), 0 to 1."""
    return Poses(slerp(a.q_xyzw, b.q_xyzw, fraction), a.t_m + fraction[:, None] * (b.t_m - a.t_m))


def take(poses: Poses, index: NDArray[np.intp]) -> Poses:
    """Return the motions at the positions `index`, shape (N,)."""
    return Poses(poses.q_xyzw[index], poses.t_m[index])
