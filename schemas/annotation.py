"""Rows of the tables that ingest writes: takes, segments, labels, planning windows.

Times are float64 seconds from the start of the take's video; intervals are half open. Paths are relative to the
corpus root. Ids carry the corpus in front (`egoexo4d:<take_uid>`).
"""

from typing import Literal

from schemas.base import Record

Split = Literal["train", "dev", "test"]
SIMULATED = "simulated"
"""Corpus name of takes whose record says that they were simulated; every page of results then says so."""


class Take(Record):
    """One recorded take: where its files lie and how its clocks relate."""

    take_id: str
    corpus: str
    name: str
    split: Split
    scenario: str
    participant: str | None
    """None where the corpus does not say; dev is then drawn by take."""
    capture: str
    video: str
    """RGB video of the head camera, upright."""
    trajectory: str | None
    """Pose file; None where the corpus has none for this take."""
    timesync: str | None
    """Table that maps video frames to the device clock."""
    calibration: str | None
    """Calibration that holds T_device_camera."""
    camera: str
    """Column prefix of the head camera in the timesync file, e.g. `aria01_214-1`."""
    timesync_start: int | None
    timesync_end: int | None
    duration_s: float
    fps: float
    n_frames: int
    """Frames counted in the container's packets (not its header)."""


class Segment(Record):
    """One action segment [start_s, end_s) of a take."""

    segment_id: str
    take_id: str
    split: Split
    position: int
    """Place in the take, counted over the segments kept, from 0."""
    run: int
    """Rises by one where a rejected segment breaks the sequence; a window never crosses it."""
    start_s: float
    end_s: float
    anchor_s: float
    """The annotated time point (or the middle, where the corpus annotates intervals)."""
    raw_text: str
    label: str
    """Normalised text."""
    label_id: str
    """Paraphrase group; two labels with one id are the same answer."""
    annotation_uid: str
    annotator: str


class Label(Record):
    """One answer of the open vocabulary."""

    label_id: str
    label: str
    """Text that the bank embeds: the most frequent training text, else the first in order."""
    paraphrases: tuple[str, ...]
    n_train: int
    n_dev: int
    n_test: int


class Window(Record):
    """One planning window: H consecutive segments of one run of one take."""

    window_id: str
    take_id: str
    split: Split
    horizon: int
    segment_ids: tuple[str, ...]
