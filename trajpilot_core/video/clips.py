"""Which times of a segment are sampled."""

import numpy as np
from numpy.typing import NDArray


def frame_times_s(start_s: float, end_s: float, fps: float, n_frames: int) -> NDArray[np.float64]:
    """Return times of shape (n_frames,), seconds: from the start to one frame before the end of [start_s, end_s).

    The last frame lies inside the half-open segment, so neighbouring segments share none (D 46 of
    docs/decisions/paper-gaps.md). In a segment shorter than a frame all times are its start.
    """
    return np.linspace(start_s, max(start_s, end_s - 1.0 / fps), n_frames)
