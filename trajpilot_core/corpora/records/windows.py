"""Planning windows: H consecutive segments of one run of one take, every start (stride 1). Source: paper, 3.1."""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def window_starts(take: Indices, run: Indices, horizon: int) -> Indices:
    """Return (W,) first rows of all windows of `horizon` segments.

    Args:
        take: (N,) number of the take of each segment; the rows of one take stand together, in order of position.
        run: (N,) run of each segment within its take.
        horizon: segments in a window.
    """
    if len(take) < horizon:
        return np.zeros(0, np.int64)
    last = slice(horizon - 1, None)
    first = slice(None, len(take) - horizon + 1)
    return np.flatnonzero((take[first] == take[last]) & (run[first] == run[last])).astype(np.int64)


def window_rows(take: Indices, run: Indices, horizon: int) -> Indices:
    """Return (W, H) rows of the segments of all windows; see `window_starts`."""
    return window_starts(take, run, horizon)[:, None] + np.arange(horizon)
