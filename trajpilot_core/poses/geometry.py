"""Rigid motions in bulk, and the rays of the pixels of an upright picture.

`T_world_camera` maps camera coordinates to world coordinates, x_world = R x_camera + t; composition reads
`T_world_camera = T_world_device * T_device_camera`. Quaternions are Hamilton, unit, order x, y, z, w, and carry the
order in their name (`q_xyzw`). Lengths are metres, rotation vectors radians. N is any number of motions, all handled
in one call; every array is float64.

Rays, from the calibration of Aria's RGB camera or an assumed field of view, are unit vectors in upright OpenCV axes (x
right, y down, z ahead). Pixels are shares of the picture's width and height, (0, 0) its upper left corner, so that a
picture that was squashed to a square has the same rays. Fisheye model: projectaria_tools, `FisheyeRadTanThinPrism` (f,
cx, cy, k0..k5, p0, p1, s0..s3). Calibrations describe the sensor, whose picture is turned 90 degrees clockwise to make
the upright video.
"""

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array

UPRIGHT_FROM_RAW = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
"""Takes coordinates of the raw Aria RGB camera (x down, y left, z ahead) to upright ones (x right, y down, z ahead)."""
SENSORS_PX = (2880, 1408)
"""Picture sides of Aria's RGB camera; a calibration does not state which one it is for."""
TURNS = 8
"""Newton steps that invert the fisheye; tests check the residual."""


class Poses(NamedTuple):
    """N rigid motions."""

    q_xyzw: Array
    """(N, 4) unit quaternions."""
    t_m: Array
    """(N, 3) translations, metres."""


class PoseFault(NamedTuple):
    """Why a clip or segment has no poses."""

    code: RejectCode
    detail: str


def compose(a: Poses, b: Poses) -> Poses:
    """Return a * b, first b then a: (N,) with (N,), or either of them (1,), which is then used for all."""
    rotation_a = Rotation.from_quat(a.q_xyzw)
    q_xyzw = (rotation_a * Rotation.from_quat(b.q_xyzw)).as_quat()
    return Poses(q_xyzw, rotation_a.apply(b.t_m) + a.t_m)


def invert(a: Poses) -> Poses:
    """Return the (N,) inverse motions."""
    inverse = Rotation.from_quat(a.q_xyzw).inv()
    return Poses(inverse.as_quat(), -inverse.apply(a.t_m))


def normalise(vectors: Array) -> Array:
    """Scale quaternions (N, 4) or vectors (N, 3) to unit norm; none may be zero."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def slerp(q0_xyzw: Array, q1_xyzw: Array, fraction: Array) -> Array:
    """Rotate (N, 4) nearly unit q0 to q1 along the shorter arc by (N,) fractions, 0 to 1; returns (N, 4), unit."""
    q0, q1 = normalise(q0_xyzw), normalise(q1_xyzw)
    q1 = np.where(np.sum(q0 * q1, axis=1, keepdims=True) < 0, -q1, q1)
    # arccos of the dot product would lose half of the digits of a small angle
    angle = 2 * np.arctan2(np.linalg.norm(q1 - q0, axis=1), np.linalg.norm(q1 + q0, axis=1))
    return normalise(_sine_ratio(1 - fraction, angle)[:, None] * q0 + _sine_ratio(fraction, angle)[:, None] * q1)


def _sine_ratio(fraction: Array, angle: Array) -> Array:
    """Return sin(fraction * angle) / sin(angle), (N,), which is `fraction` where the angle is 0."""
    return np.asarray(fraction * np.sinc(fraction * angle / np.pi) / np.sinc(angle / np.pi))


def interpolate(a: Poses, b: Poses, fraction: Array) -> Poses:
    """Return N motions between a and b: lerp of the position, slerp of the rotation; fraction of shape (N,), 0 to 1."""
    return Poses(slerp(a.q_xyzw, b.q_xyzw, fraction), a.t_m + fraction[:, None] * (b.t_m - a.t_m))


def take(poses: Poses, index: NDArray[np.intp]) -> Poses:
    """Return the motions at the positions `index`, shape (N,)."""
    return Poses(poses.q_xyzw[index], poses.t_m[index])


class Lens(NamedTuple):
    """The projection of a picture; plain numbers, so that it can be sent to another process."""

    model: Literal["fisheye", "linear", "assumed"]
    params: tuple[float, ...]
    """fisheye: 15 numbers, linear: fx, fy, cx, cy, both in pixels of `side_px`; assumed: degrees on the long side."""
    side_px: float
    """Side of the square sensor picture; 0 for assumed."""


def known_lens(projection: Any) -> Lens | None:
    """Return the lens of a calibration's `Projection` record; None where its kind is unknown."""
    try:
        name, params = projection["Name"], tuple(float(value) for value in projection["Params"])
    except (TypeError, ValueError, KeyError):
        return None
    if not np.isfinite(params).all() or params[:1] <= (0.0,):
        return None
    if name == "FisheyeRadTanThinPrism" and len(params) == 15:
        side_px = min(SENSORS_PX, key=lambda side: abs(side - 2 * params[1]))
        return Lens("fisheye", params, float(side_px))
    if name == "Linear" and len(params) == 4:
        return Lens("linear", params, 2 * params[2] + 1)
    return None


def assumed_lens(view_deg: float) -> Lens:
    """Return a pinhole that sees `view_deg` degrees along the longer side of the picture."""
    return Lens("assumed", (view_deg,), 0.0)


def rays(lens: Lens, shares: Array, aspect: float) -> Array:
    """Return the (N, 3) unit rays of places in the upright picture.

    Args:
        shares: (N, 2) x as a share of the width, y as a share of the height.
        aspect: width over height of the picture before squashing.
    """
    if lens.model == "assumed":
        long = 2 * np.tan(np.deg2rad(lens.params[0]) / 2)
        width, height = (long, long / aspect) if aspect >= 1 else (long * aspect, long)
        plane = (shares - 0.5) * [width, height]
        return normalise(np.column_stack([plane, np.ones(len(plane))]))
    # the sensor's picture, rotated clockwise, is the upright one
    raw_px = np.column_stack([shares[:, 1], 1 - shares[:, 0]]) * lens.side_px - 0.5
    if lens.model == "linear":
        fx, fy, cx, cy = lens.params
        sensor = normalise(np.column_stack([(raw_px - [cx, cy]) / [fx, fy], np.ones(len(raw_px))]))
    else:
        sensor = _fisheye(lens.params, raw_px)
    return np.asarray(sensor @ UPRIGHT_FROM_RAW.T)


def _fisheye(params: tuple[float, ...], pixels: Array) -> Array:
    """Return the rays of a fisheye's pixels (N, 2): undo thin prism and tangential terms, then the radial ones."""
    focal, cx, cy, *rest = params
    radial, tangential, prism = np.array(rest[:6]), np.array(rest[6:8]), np.array(rest[8:]).reshape(2, 2)
    seen = (pixels - [cx, cy]) / focal
    plane = seen
    for _ in range(TURNS):
        square = np.sum(plane**2, axis=1, keepdims=True)
        bent = 2 * (plane @ tangential)[:, None] * plane + square * tangential
        plane = seen - bent - np.hstack([square, square**2]) @ prism.T
    distance, powers = np.linalg.norm(plane, axis=1), np.arange(1, len(radial) + 1)
    angle = np.minimum(distance, 1.2)
    for _ in range(TURNS):  # angle * (1 + k0 angle^2 + ... + k5 angle^12) = distance, by Newton's method
        even = angle[:, None] ** (2 * powers)
        value = angle * (1 + even @ radial) - distance
        slope = 1 + even @ (radial * (2 * powers + 1))
        angle = np.clip(angle - value / np.where(np.abs(slope) < 0.1, 0.1, slope), 0.0, 1.5)
    along = plane / np.maximum(distance, 1e-12)[:, None]
    return np.column_stack([along * np.sin(angle)[:, None], np.cos(angle)])
