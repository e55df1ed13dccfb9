"""Array types that many modules share."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Real numbers: positions, rotations, times, probabilities, sums."""
Codes = NDArray[np.int64]
"""Integer codes of labels, takes, rows of a table."""
Mask = NDArray[np.bool_]
"""Boolean mask."""
Image = NDArray[np.uint8]
"""Pixels, RGB: (height, width, 3), or (frames, height, width, 3)."""
