"""Corners that are tracked through the frames of a clip."""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from trajpilot_core.arrays import Array, Image

Floats = NDArray[np.float32]

WINDOW_PX, LEVELS, CORNER_QUALITY = 15, 3, 0.01
BACK_PX = 0.7
"""Largest distance of a point from its start after tracking to the next frame and back."""
REFILL = 0.7
"""New points are detected below this share of the wanted number."""


class Tracks(NamedTuple):
    """M observations, point by point, each in order of the frames; a point is seen in neighbouring frames only."""

    point: NDArray[np.intp]
    """(M,)."""
    frame: NDArray[np.intp]
    """(M,)."""
    pixel: Array
    """(M, 2) x, y."""


def follow(frames: Image, wanted: int, mask: Image) -> Tracks:
    """Detect corners and track them (pyramidal Lucas-Kanade, forward and back); lost ones are replaced.

    Args:
        frames: (T, S, S) gray.
        wanted: corners that are kept in view.
        mask: (S, S), 0 where corners are not allowed.
    """
    ids, places = np.zeros(0, np.intp), np.zeros((0, 2), np.float32)
    seen: list[tuple[NDArray[np.intp], Floats]] = []
    n_points = 0
    for at, frame in enumerate(frames):
        if len(ids):
            kept, places = _step(frames[at - 1], frame, places, mask)
            ids = ids[kept]
        if len(ids) < REFILL * wanted:
            fresh = _corners(frame, wanted - len(ids), places, mask)
            ids = np.concatenate([ids, np.arange(n_points, n_points + len(fresh))])
            places = np.concatenate([places, fresh])
            n_points += len(fresh)
        seen.append((ids, places))
    point = np.concatenate([ids for ids, _ in seen])
    frame_of = np.repeat(np.arange(len(frames)), [len(ids) for ids, _ in seen])
    order = np.argsort(point, kind="stable")
    return Tracks(point[order], frame_of[order], np.concatenate([p for _, p in seen])[order].astype(np.float64))


def _step(before: Image, after: Image, places: Floats, mask: Image) -> tuple[NDArray[np.bool_], Floats]:
    """Track points (N, 2) to the next frame; return which are kept, (N,), and the positions of those."""
    there, found = _flow(before, after, places)
    back, returned = _flow(after, before, there)
    near = np.linalg.norm(back - places, axis=1) < BACK_PX
    inside = ((there >= 0) & (there <= len(mask) - 1)).all(axis=1)
    cell = np.clip(np.rint(there), 0, len(mask) - 1).astype(np.intp)
    kept = found & returned & near & inside & (mask[cell[:, 1], cell[:, 0]] > 0)
    return kept, there[kept]


def _flow(before: Image, after: Image, places: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the new positions of points (N, 2), and whether they were found, (N,)."""
    there, found, _ = cv2.calcOpticalFlowPyrLK(
        before, after, places, np.empty_like(places), winSize=(WINDOW_PX, WINDOW_PX), maxLevel=LEVELS
    )
    return np.asarray(there, np.float32), np.asarray(found).ravel() > 0


def _corners(frame: Image, wanted: int, taken: Floats, mask: Image) -> Floats:
    """Return (N, 2) corners of a frame, N at most `wanted`, away from those that exist."""
    apart = max(4, len(mask) // 40)
    free = mask.copy()
    for x, y in np.rint(taken).astype(int).tolist():
        cv2.circle(free, (x, y), apart, 0, -1)
    corners = cv2.goodFeaturesToTrack(frame, wanted, CORNER_QUALITY, apart, mask=free)
    return np.zeros((0, 2), np.float32) if corners is None else np.asarray(corners, np.float32).reshape(-1, 2)
