"""What a world is before any file is written: immutable records of everything that was drawn.

The truth never goes to disk. It serves the writer, the tests and the exact-inference ceiling.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.world import WorldConfig
from trajpilot_core.arrays import Array

CHANNELS = 6
"""Head motion channels: right, up, forward (translation units), yaw left, pitch up, roll (rotation units)."""
BASES = 2
"""Profiles over a step that carry the motion coefficients (see motion.py)."""
LOOKS = 6
"""Coefficients of the station's look: red, green, blue, board against mat, stripe contrast, stripe width."""
COLOURS = 3
"""The first of them are the common colour."""


@dataclass(frozen=True)
class LabelTruth:
    """One label: its place in its procedure, its texts, and what it contributes to motion and look."""

    label_id: str
    task: int
    position: int
    alternative: int
    primitive: int
    place: int
    """Usual place of the acted object on the table."""
    texts: tuple[str, ...]
    """Normalised paraphrases, the usual one first."""


@dataclass(frozen=True)
class SegmentTruth:
    """One performed step [start_s, end_s), with its latent motion and look."""

    label: int
    start_s: float
    end_s: float
    time_s: float
    """The time point that the (first) annotator gives."""
    motion: Array
    """(CHANNELS * BASES,) coefficients = kappa * label vector + style * style vector + noise."""
    look: Array
    """(LOOKS,) coefficients = task + position + label + noise."""
    place: int


@dataclass(frozen=True)
class CaptureTruth:
    """One recording session: an operator in a room, on one device clock."""

    uid: str
    name: str
    operator: int
    camera: str
    """Camera id of the glasses, `aria01` or `aria02`."""
    clock_ns: int
    """Device time of timesync row 0."""
    rows: int
    """Rows of timesync.csv."""
    exclusive: bool
    """True: frames of a take are strictly between its start and end rows; False: from the start row on."""
    geo_columns: bool
    """Whether the trajectory files carry the newer ECEF columns."""


@dataclass(frozen=True)
class TakeTruth:
    """One take: who, what, when, and what is broken about it."""

    uid: str
    name: str
    index: int
    """Stream number of the take's own random draws."""
    capture: int
    task: int
    intent: int
    split: str
    """`train` or `val`; `test` for the take whose labels a layout keeps back."""
    fault: str | None
    segments: tuple[SegmentTruth, ...]
    n_frames: int
    first_row: int
    """Timesync row of frame 0."""
    dense: bool
    """Trajectory near 1 kHz with an uneven clock."""


@dataclass(frozen=True)
class World:
    """Everything that the generator drew."""

    config: WorldConfig
    labels: tuple[LabelTruth, ...]
    task_names: tuple[str, ...]
    preferred: NDArray[np.int64]
    """(intents, tasks, positions) alternative that each intent prefers."""
    motion_labels: Array
    """(labels, CHANNELS * BASES) unit vectors."""
    motion_styles: Array
    """(operators, intents, CHANNELS * BASES) unit vectors."""
    look_means: Array
    """(labels, LOOKS) mean look of a step of that label."""
    participants: tuple[int, ...]
    """Released numbers of the operators."""
    captures: tuple[CaptureTruth, ...]
    takes: tuple[TakeTruth, ...]

    def take_duration_s(self, take: TakeTruth) -> float:
        """Return the length of the take's video in seconds."""
        return take.n_frames / self.config.fps


def stream(config: WorldConfig, purpose: str, index: int = 0) -> np.random.Generator:
    """Return the random stream of one purpose and one item; it does not depend on any other stream."""
    return np.random.default_rng([config.seed, index, *purpose.encode()])


def random_uid(rng: np.random.Generator) -> str:
    """Return a uuid-shaped text drawn from `rng`."""
    digits = rng.bytes(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
