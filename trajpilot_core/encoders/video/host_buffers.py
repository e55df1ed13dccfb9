"""Memory of the host in which batches of clips wait for the encoder."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

ClipFrames = Sequence[NDArray[np.uint8]] | NDArray[np.uint8]
"""Clips (T, size, size, 3) of RGB, one by one or as one array."""
Wait = Callable[[], NDArray[np.float16]]
"""Waits for the vectors of a batch and returns them, (B, width); a second call returns the same."""


class HostBuffers:
    """Buffers for batches of clips, used in turn: on a GPU one is filled while the device reads the other.

    There they are page-locked: an upload from other memory stops the host until it is over.
    """

    def __init__(self, device: str) -> None:
        self._n = 2 if device.startswith("cuda") else 1
        self.page_locked = self._n > 1 and torch.cuda.is_available()
        self._used: list[tuple[NDArray[np.uint8], Wait]] = []

    def filled(self, clips: ClipFrames, batch: int) -> NDArray[np.uint8]:
        """Return (batch, T, size, size, 3): a copy of the clips, and black ones behind them.

        Args:
            clips: one to `batch` of equal shape (T, size, size, 3).
            batch: how many the encoder is given.
        """
        buffer = self._free((batch, *clips[0].shape))
        for number, clip in enumerate(clips):
            buffer[number] = clip
        buffer[len(clips) :] = 0
        return buffer

    def in_use(self, buffer: NDArray[np.uint8], wait: Wait) -> None:
        """Keep a buffer (batch, T, size, size, 3) that `filled` returned as it is until `wait` has returned."""
        self._used.append((buffer, wait))

    def _free(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """Return the oldest buffer once its batch is through, or a new one where that has another shape."""
        if len(self._used) == self._n:
            buffer, wait = self._used.pop(0)
            wait()
            if buffer.shape == shape:
                return buffer
        frames: NDArray[np.uint8] = torch.empty(shape, dtype=torch.uint8, pin_memory=self.page_locked).numpy()
        return frames
