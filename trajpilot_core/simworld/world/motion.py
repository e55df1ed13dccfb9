"""Head motion of a take: a smooth SE(3) pose stream that can be asked at any time.

Room frame: x ahead to the station, y left, z up, metres. The head is the upright camera: x right, y down, z ahead.
Every step adds an excursion that starts and ends at rest at zero, so that joins are continuous in position and speed;
slow drift, gait and breathing are added, independent of labels.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation

from trajpilot_core.arrays import Array
from trajpilot_core.simworld.world.truth import BASES, CHANNELS, TakeTruth, World, stream

EYE_M = np.array([0.0, 0.0, 1.62])
"""Mean place of the head in the room."""
LOOK_DOWN_RAD = np.deg2rad(24.0)
"""Mean pitch towards the table."""
DRIFT_M = np.array([0.10, 0.02, 0.10])
"""Amplitude of the slow drift right, up, forward."""
DRIFT_RAD = np.deg2rad([7.0, 3.0, 1.5])
"""Amplitude of the slow drift in yaw, pitch, roll."""
DRIFT_WAVES = 3


@dataclass(frozen=True)
class HeadMotion:
    """Parameters of one take's head motion; pure data, evaluated by `channels_at`."""

    edges_s: Array
    """(N + 1,) boundaries of the steps."""
    excursion: Array
    """(N, BASES, CHANNELS) peak excursions in metres and radians."""
    amplitude: Array
    """(W, CHANNELS) of the drift, gait and breathing waves."""
    omega: Array
    """(W,) rad/s."""
    phase: Array
    """(W, CHANNELS)."""


def head_motion(world: World, take: TakeTruth) -> HeadMotion:
    """Return the head motion of one take (its waves are drawn from the take's own stream)."""
    config = world.config
    rng = stream(config, "gait", take.index)
    unit = np.repeat([config.unit_translation_m, np.deg2rad(config.unit_rotation_deg)], 3)
    excursion = np.stack([s.motion for s in take.segments]).reshape(-1, BASES, CHANNELS) * unit
    drift = np.concatenate([DRIFT_M, DRIFT_RAD]) / np.sqrt(DRIFT_WAVES)
    slow = drift * rng.normal(size=(DRIFT_WAVES, CHANNELS))
    gait = np.array([[0.004, 0.006, 0.003, 0.003, 0.002, 0.004]]) * rng.uniform(0.5, 1.5, size=(1, CHANNELS))
    breath = np.array([[0.0, 0.003, 0.002, 0.0, 0.003, 0.0]])
    omega = 2 * np.pi * np.array([*rng.uniform(0.03, 0.12, DRIFT_WAVES), rng.uniform(1.5, 2.1), rng.uniform(0.2, 0.3)])
    amplitude = config.wander * np.concatenate([slow, gait, breath])
    edges = np.array([take.segments[0].start_s, *(s.end_s for s in take.segments)])
    phase = rng.uniform(0.0, 2 * np.pi, size=amplitude.shape)
    return HeadMotion(edges, excursion, amplitude, omega, phase)


def profiles(s: Array) -> Array:
    """Return the excursion profiles (BASES, N) at phases `s` (N,) in [0, 1].

    Out and back (peak 1), and out to one side, then to the other (peaks +-1); value and slope vanish at 0 and 1.
    """
    bump = np.sin(np.pi * s) ** 2
    return np.stack([bump, np.sin(2 * np.pi * s) * bump / 0.6495190528383290])


def channels_at(motion: HeadMotion, t_s: Array) -> Array:
    """Return (N, CHANNELS) displacements right, up, forward (m), yaw left, pitch up, roll (rad) at times `t_s` (N,)."""
    step = np.clip(np.searchsorted(motion.edges_s, t_s, side="right") - 1, 0, len(motion.excursion) - 1)
    start, end = motion.edges_s[step], motion.edges_s[step + 1]
    phase = np.clip((t_s - start) / (end - start), 0.0, 1.0)
    excursion = np.einsum("bn,nbc->nc", profiles(phase), motion.excursion[step])
    waves = np.sin(t_s[:, None, None] * motion.omega[:, None] + motion.phase)
    return np.asarray(excursion + np.einsum("nwc,wc->nc", waves, motion.amplitude))


def head_poses(motion: HeadMotion, t_s: Array) -> tuple[Array, Array]:
    """Return T_room_head at times `t_s` (N,): rotations (N, 3, 3) and positions (N, 3), metres.

    The head frame is the upright camera (x right, y down, z ahead).
    """
    u = channels_at(motion, t_s)
    yaw, pitch, roll = u[:, 3], u[:, 4] - LOOK_DOWN_RAD, u[:, 5]
    level = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    turned = Rotation.from_euler("ZYX", np.stack([yaw, -pitch, np.zeros_like(yaw)], axis=1)).as_matrix()
    rolled = Rotation.from_euler("Z", roll[:, None]).as_matrix()
    position = EYE_M + u[:, [2]] * [1.0, 0.0, 0.0] - u[:, [0]] * [0.0, 1.0, 0.0] + u[:, [1]] * [0.0, 0.0, 1.0]
    return np.asarray(turned @ level @ rolled), position
