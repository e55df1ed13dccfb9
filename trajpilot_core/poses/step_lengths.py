"""Lengths of head motion from video in the unit of that from pose files (D 20)."""

import numpy as np

from schemas.observation import DOF, MOTIONS
from trajpilot_core.arrays import Array
from trajpilot_core.poses.sources.video import scaled, step_rms


def median_step_m(motions_S: Array) -> float:
    """Return the median of the clips' root mean square steps of (S, 16, 6) motions: the unit of their lengths."""
    return float(np.median([step_rms(clip[:, :3]) for clip in motions_S.astype(np.float64)]))


def rms_scaled(motions_S: Array, step_m: float) -> Array:
    """Return (S, 16, 6) motions whose clips all have the root mean square step `step_m`."""
    clips = motions_S.astype(np.float64).reshape(-1, MOTIONS, DOF).copy()
    for clip in clips:
        clip[:, :3] = scaled(clip[:, :3], "rms", step_m)
    return clips
