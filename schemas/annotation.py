"""Rows of the tables that ingest, trajectories, features and text bank write."""

from typing import Literal

import pyarrow as pa

from schemas.arrow import arrow_schema
from schemas.base import Record

Split = Literal["train", "dev", "test"]
SHORTEST_PLAN = 3
"""Segments of the shortest window with a step to plan: Start, one step, Goal. Source: paper, 3.1."""
SIMULATED = "simulated"
"""Corpus name of simulated takes; every page of results then states that they are simulated."""
KNOTS, MOTIONS, DOF = 17, 16, 6
"""17 poses at equal times over a segment give 16 relative motions of 6 numbers (paper, appendix on preprocessing)."""


class Take(Record):
    """One recorded take: its files and the relation of its clocks."""

    take_id: str
    corpus: str
    name: str
    split: Split
    scenario: str
    participant: str | None
    """None if unknown; dev is then chosen by take."""
    capture: str
    video: str
    """RGB video of the head camera, upright; empty if ingest ran without videos (`ingest.video=none`)."""
    trajectory: str | None
    """Pose file; None if the corpus has none for this take."""
    timesync: str | None
    """Table that maps video frames to the device clock."""
    calibration: str | None
    """Calibration with T_device_camera."""
    camera: str
    """Column prefix of the head camera in the timesync file, e.g. `aria01_214-1`; `latents` without pixels."""
    timesync_start: int | None
    timesync_end: int | None
    duration_s: float
    fps: float
    n_frames: int
    """Frames counted in the container's packets, not taken from its header; without videos, from the length."""


class Segment(Record):
    """One action segment [start_s, end_s) of a take."""

    segment_id: str
    take_id: str
    split: Split
    position: int
    """Index among the kept segments of the take, from 0."""
    run: int
    """Incremented where a rejected segment breaks the sequence; no window crosses such a break."""
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
    """Text that the bank embeds: the most frequent training text, or the first in sorted order."""
    paraphrases: tuple[str, ...]
    n_train: int
    n_dev: int
    n_test: int


class LabelClass(Record):
    """The class of one label: an answer of the closed vocabulary (docs/decisions/classes.md)."""

    label_id: str
    class_id: str
    """Id of the label that gives the class its text; the label's own id if it forms a class alone."""
    class_text: str
    """Text of the class's most frequent training label; ties go to the first in sorted order."""
    n_train: int
    """Training segments of the label, as in `Label`."""


class Window(Record):
    """One planning window: H consecutive segments of one run of one take."""

    window_id: str
    take_id: str
    split: Split
    horizon: int
    segment_ids: tuple[str, ...]


class TakeContent(Record):
    """Digests of what the annotations of one take contribute to trainings; equal digests need no second training."""

    take_id: str
    segments: str
    """Sha256 of the ids and labels of its segments."""
    windows: str
    """Sha256 of its windows and their segments."""


class Details(Record):
    """Further annotations of a segment that some corpora provide; null where a corpus has none."""

    annotated_start_s: float | None = None
    """The segment as annotated; `Segment` has the interval that models see."""
    annotated_end_s: float | None = None
    error_type: str | None = None
    """EgoPER: Normal, or the kind of error."""
    verb_class: int | None = None
    noun_class: int | None = None
    observed_end_s: float | None = None
    """EPIC-KITCHENS: end of what may be seen before the action, before `annotated_start_s`."""
    is_unseen: bool | None = None
    """EPIC-KITCHENS: the participant is in no training video."""
    is_tail_verb: bool | None = None
    is_tail_noun: bool | None = None
    event: str | None = None
    """Basketball: the shot that the segment belongs to."""
    role: str | None = None
    """Basketball: context (before the shot) or shot."""
    outcome: str | None = None
    """Basketball: made or missed."""
    evidence: str | None = None
    """Basketball: the text that shows the outcome."""


class SegmentDetails(Details):
    """One row of the table `details`: one per segment that is kept."""

    segment_id: str
    take_id: str


class ScenarioLabel(Record):
    """One label of one scenario, and how often it occurs there."""

    scenario: str
    label_id: str
    n_train: int
    n_dev: int
    n_test: int
    is_allowed: bool
    """Masks of this scenario allow the label: it occurs there in training, or the reader's settings allow it."""


class CorpusCount(Record):
    """One count of a corpus next to the paper's."""

    what: str
    ours: int
    paper: int | None
    """None if the paper states none, and for simulated takes."""
    setting: str
    """Settings that determine it; empty if none does."""


class HeadMotions(Record):
    """Head motion of one segment; the column `motions` holds 16 x 6 float32, row-major.

    Motion k is T_k^-1 T_k+1 in the earlier body frame: dx, dy, dz in metres, then the rotation vector in radians.
    """

    segment_id: str
    take_id: str
    source: Literal["aria", "pi3", "odometry"]
    frame: Literal["camera", "device", "camera_upright"]
    """Body frame and its axes: raw Aria RGB camera (x down, y left, z ahead), device, upright (x right, y down)."""
    scale: Literal["metric", "arbitrary"]
    coverage: float
    """Share of the segment that the poses cover, 0 to 1."""
    quality: float
    """Lowest tracking quality among the poses used, 0 to 1; what it means for video: docs/decisions/poses.md."""
    max_gap_s: float
    """Longest gap between neighbouring poses inside the segment, as far as it was examined."""


class Feature(Record):
    """Appearance of one segment; the column `vector` holds float16, D or 8 x D numbers."""

    segment_id: str
    take_id: str
    encoder: str
    """Digest of weights and preprocessing."""
    frame_times_s: tuple[float, ...]
    """Presentation times of the 16 frames that were decoded; of released features start and end of each row."""


class TextVector(Record):
    """One label of the text bank; the column `vector` holds float32 of unit norm."""

    label_id: str
    label: str
    encoder: str


class StateDescription(Record):
    """One sentence about the state before or after a label; the column `vector` holds float32 of unit norm."""

    label_id: str
    place: int
    """0 to 2: before; 3 to 5: after."""
    text: str


def motions_schema() -> pa.Schema:
    """Return the Arrow schema of the motions table."""
    return arrow_schema(HeadMotions, motions=pa.list_(pa.float32(), MOTIONS * DOF))


def features_schema(width: int, tokens: int = 1) -> pa.Schema:
    """Return the Arrow schema of features: vectors of `width` numbers, `tokens` equal parts each (metadata)."""
    schema = arrow_schema(Feature, vector=pa.list_(pa.float16(), width))
    return schema if tokens == 1 else schema.with_metadata({"tokens": str(tokens)})


def descriptions_schema(width: int) -> pa.Schema:
    """Return the Arrow schema of the descriptions for vectors of `width` numbers."""
    return arrow_schema(StateDescription, vector=pa.list_(pa.float32(), width))


def text_bank_schema(width: int) -> pa.Schema:
    """Return the Arrow schema of the text bank for vectors of `width` numbers."""
    return arrow_schema(TextVector, vector=pa.list_(pa.float32(), width))
