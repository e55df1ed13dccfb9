"""Points that are followed through the frames of a clip."""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

Gray = NDArray[np.uint8]
Floats = NDArray[np.float32]

WINDOW_PX, LEVELS, CORNER_QUALITY = 15, 3, 0.01
BACK_PX = 0.7
"""A point that is followed to the next frame and back must return this near."""
REFILL = 0.7
"""New points are looked for where fewer than this share of the wanted number is left."""


class Tracks(NamedTuple):
    """M observations of P points, in order of the frames."""

    point: NDArray[np.intp]
    """(M,) 0..P-1."""
    frame: NDArray[np.intp]
    """(M,)."""
    pixel: NDArray[np.float64]
    """(M, 2) x, y."""
    n_points: int


def follow(frames: NDArray[np.uint8], wanted: int, mask: Gray) -> Tracks:
    """Find corners and follow them (pyramidal Lucas-Kanade, forward and back); lost ones are replaced by new ones.

    Args:
        frames: (T, S, S) gray.
        wanted: corners that are kept in view.
        mask: (S, S), 0 where no corner may lie.
    """
    ids, places = np.zeros(0, np.intp), np.zeros((0, 2), np.float32)
    seen: list[tuple[NDArray[np.intp], Floats]] = []
    n_points = 0
    for at, frame in enumerate(frames):
        if at:
            kept, places = _step(frames[at - 1], frame, places, mask)
            ids = ids[kept]
        if len(ids) < REFILL * wanted:
            fresh = _corners(frame, wanted - len(ids), places, mask)
            ids = np.concatenate([ids, np.arange(n_points, n_points + len(fresh))])
            places = np.concatenate([places, fresh])
            n_points += len(fresh)
        seen.append((ids, places))
    return Tracks(
        np.concatenate([ids for ids, _ in seen]),
        np.repeat(np.arange(len(frames)), [len(ids) for ids, _ in seen]),
        np.concatenate([places for _, places in seen]).astype(np.float64),
        n_points,
    )


def _step(before: Gray, after: Gray, places: Floats, mask: Gray) -> tuple[NDArray[np.bool_], Floats]:
    """Follow points (N, 2) to the next frame; returns which are kept, (N,), and where those are."""
    if not len(places):
        return np.zeros(0, np.bool_), places
    there, found = _flow(before, after, places)
    back, returned = _flow(after, before, there)
    near = np.linalg.norm(back - places, axis=1) < BACK_PX
    inside = ((there >= 0) & (there <= len(mask) - 1)).all(axis=1)
    cell = np.clip(np.rint(there), 0, len(mask) - 1).astype(np.intp)
    kept = found & returned & near & inside & (mask[cell[:, 1], cell[:, 0]] > 0)
    return kept, there[kept]


def _flow(before: Gray, after: Gray, places: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Return where points (N, 2) went, and whether they were found, (N,)."""
    window = (WINDOW_PX, WINDOW_PX)
    there, found, _ = cv2.calcOpticalFlowPyrLK(
        before, after, places, np.empty_like(places), winSize=window, maxLevel=LEVELS
    )
    return np.asarray(there, np.float32), np.asarray(found).ravel() > 0


def _corners(frame: Gray, wanted: int, taken: Floats, mask: Gray) -> Floats:
    """Return (N, 2) corners of a frame, N at most `wanted`, away from those that exist."""
    apart = max(4, len(mask) // 40)
    free = mask.copy()
    for x, y in np.rint(taken).astype(int).tolist():
        cv2.circle(free, (x, y), apart, 0, -1)
    found = cv2.goodFeaturesToTrack(frame, wanted, CORNER_QUALITY, apart, mask=free)
    return np.zeros((0, 2), np.float32) if found is None else np.asarray(found, np.float32).reshape(-1, 2)
