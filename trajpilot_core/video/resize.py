"""Squash a picture to a square with the bilinear filter of PIL: antialiased when shrinking. Imports numpy only.

Each output row is a weighted mean of the input rows under a triangle as wide as two output rows (two input rows when
enlarging), then the same for columns. Nothing is rounded in between; PIL rounds, so results differ by at most 1/255.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Taps = tuple[NDArray[np.intp], NDArray[np.float32]]
Shape = Callable[[NDArray[np.uint8], int], NDArray[np.uint8]]
"""Upright RGB picture (H, W, 3), side S -> (S, S, 3)."""


def squash(image: NDArray[np.uint8], size_px: int) -> NDArray[np.uint8]:
    """Return a picture (H, W, 3) as (S, S, 3), S = `size_px`."""
    height, width, colours = image.shape
    rows = _filtered(image.reshape(height, -1), size_px)
    turned = np.ascontiguousarray(rows.reshape(size_px, width, colours).swapaxes(0, 1))
    columns = _filtered(turned.reshape(width, -1), size_px)
    square = columns.reshape(size_px, size_px, colours).swapaxes(0, 1)
    return np.ascontiguousarray(np.rint(square).astype(np.uint8))


def _filtered(lines: NDArray[np.uint8] | NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return the weighted means (size, K) of lines (N, K)."""
    index, weight = taps(len(lines), size)
    out = np.zeros((size, lines.shape[1]), np.float32)
    for tap in range(index.shape[1]):
        out += weight[:, tap, None] * lines[index[:, tap]]
    return out


@lru_cache(maxsize=16)
def taps(n_in: int, n_out: int) -> Taps:
    """Return the inputs of each output, and their weights, both (n_out, taps); rows of weights sum to 1."""
    scale = n_in / n_out
    support = max(scale, 1.0)
    centre = (np.arange(n_out) + 0.5) * scale
    first = np.maximum((centre - support + 0.5).astype(np.intp), 0)
    index = first[:, None] + np.arange(2 * math.ceil(support) + 1)
    weight = np.clip(1 - np.abs((index + 0.5 - centre[:, None]) / support), 0, None)
    weight[index >= n_in] = 0
    weight /= weight.sum(axis=1, keepdims=True)
    used = weight.any(axis=0)
    return np.minimum(index, n_in - 1)[:, used], weight[:, used].astype(np.float32)
