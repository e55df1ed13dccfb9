"""Names of the array types that many modules share."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Real numbers: positions, rotations, times, probabilities, sums."""
Codes = NDArray[np.int64]
"""Whole numbers that stand for something: labels, takes, rows of a table."""
Mask = NDArray[np.bool_]
"""True where something holds."""
Image = NDArray[np.uint8]
"""Pixels, RGB: (height, width, 3), or (frames, height, width, 3)."""
