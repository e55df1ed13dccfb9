"""Planning windows: H consecutive segments of one run of one take, every start (stride 1). Source: paper, 3.1."""

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


def window_rows(take: Indices, run: Indices, horizon: int) -> Indices:
    """Return (W, H) rows of the segments of all windows of `horizon` segments.

    Args:
        take: (N,) number of the take of each segment; the rows of one take stand together, in order of position.
        run: (N,) run of each segment within its take.
        horizon: segments in a window.
    """
    first, last = slice(None, max(0, len(take) - horizon + 1)), slice(horizon - 1, None)
    starts = np.flatnonzero((take[first] == take[last]) & (run[first] == run[last]))
    return starts[:, None].astype(np.int64) + np.arange(horizon)
