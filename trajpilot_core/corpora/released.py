"""Feature files that corpora publish: their paths, and which time of the video each row represents.

A row represents a window of frames of the video at a canonical rate. Formula of the rows: Ego4d@a44f40b,
`extract_features.py`, `_num_fvs`; what it leaves open: docs/decisions/released-features.md. This module imports no
torch and opens no file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from schemas.annotation import Take
from schemas.features import RELEASED_WIDTHS, ReleasedName
from trajpilot_core.arrays import Array


@dataclass(frozen=True)
class RowClock:
    """Which frames of a video the rows of a feature file represent."""

    rate_hz: float = 30.0
    """Canonical frame rate, which may differ from that of the video."""
    window: int = 32
    """Frames per row."""
    stride: int = 16
    """Frames from one row to the next."""
    ends_with_video: bool = True
    """Whether an additional row, moved back to end with the video, covers the frames that the stride leaves."""

    def n_frames(self, duration_s: float) -> int:
        """Return how many canonical frames a video has."""
        return round(duration_s * self.rate_hz)

    def n_rows(self, n_frames: int) -> int:
        """Return the number of rows of a video with that many frames."""
        left = n_frames - self.window
        return 1 if left < 0 else left // self.stride + 1 + (self.ends_with_video and left % self.stride != 0)

    def spans_s(self, n_rows: int, n_frames: int) -> Array:
        """Return the (n_rows, 2) starts and ends of the windows, seconds.

        The last window is moved back to end with the video, where a file has as many rows as the video should; a video
        that is shorter than a window is one row, as long as the video. In a file with other rows than expected each
        window starts where the stride puts it.
        """
        start = np.arange(n_rows, dtype=np.float64) * self.stride
        if self.ends_with_video and n_rows == self.n_rows(n_frames):
            start[-1] = max(0, n_frames - self.window)
        end = start + (min(self.window, n_frames) if n_rows == 1 else self.window)
        return np.stack([start, end], axis=1) / self.rate_hz

    def off_s(self, n_rows: int, n_frames: int) -> float:
        """Return by how many seconds the rows end before (negative) or after the last row that the video should have.

        The resolution is one row.
        """
        return (n_rows - self.n_rows(n_frames)) * self.stride / self.rate_hz


@dataclass(frozen=True)
class ReleasedFeatures:
    """One set of released features of a corpus."""

    name: ReleasedName
    clock: RowClock
    stem: Callable[[Take], str]
    """Name of a take's file, without its suffix."""
    folders: tuple[str, ...]
    """Folders under the corpus root that may contain files of the set."""
    suffix: str
    """Suffix of the file names."""
    fetch: str
    """Command that fetches it; `ROOT` is replaced by the folder."""

    @property
    def width(self) -> int:
        """Numbers per row."""
        return RELEASED_WIDTHS[self.name]

    def files(self, take: Take) -> tuple[str, ...]:
        """Return the possible paths of a take's file under the corpus root; the first that exists is read."""
        return tuple(f"{folder}/{self.stem(take)}{self.suffix}" for folder in self.folders)


EGOEXO4D_FOLDERS = ("features/omnivore_video", "features")
"""The path on the page of the corpus lacks the folder of the set, that of its downloader has it. Source: Ego4d@a44f40b,
`ego4d/internal/download/manifest_gen.py`."""
HEAD_CAMERA = "_rgb.pt"
"""End of the names of files of Aria glasses; those of other cameras end in `_0.pt`."""
OMNIVORE_VIDEO = ReleasedFeatures(
    "omnivore_video",
    RowClock(),
    lambda take: f"{take.take_id.partition(':')[2]}_{take.camera.rpartition('_')[0]}",
    EGOEXO4D_FOLDERS,
    HEAD_CAMERA,
    "egoexo -o ROOT --parts features/omnivore_video",
)
NPZ_KEY = "feats"
"""Key of the array in its files."""
EPIC_FOLDERS = ("epic_kitchens/features", "features")
"""As in ActionFormer's archive. Source: actionformer_release@61ea7eb, `libs/datasets/epic_kitchens.py`."""
EPIC_SLOWFAST = ReleasedFeatures(
    "epic_slowfast",
    RowClock(ends_with_video=False),
    lambda take: take.name,
    EPIC_FOLDERS,
    ".npz",
    "unpack epic_kitchens.tar.gz of github.com/happyharrycn/actionformer_release in ROOT",
)
RELEASED: Mapping[str, ReleasedFeatures] = {released.name: released for released in (OMNIVORE_VIDEO, EPIC_SLOWFAST)}
"""FeatureConfig.released -> the set."""
