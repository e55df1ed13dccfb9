"""The query about a user's own video, and the plan that answers it (`trajpilot predict`)."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from schemas.annotation import SHORTEST_PLAN, Split
from schemas.base import Record
from schemas.places import Place
from schemas.results import Variant

SECONDS = r"\d+(?:\.\d+)?"
INTERVAL = rf"^\s*({SECONDS})\s*-\s*({SECONDS})\s*$"
FORMAT = 1
"""Version of the layout of plan.json."""


def _interval(text: str) -> str:
    """Return the text if it is an interval; else raise pydantic's error in our words."""
    if re.match(INTERVAL, text) is None:
        message = f"{text!r} is no interval; write start and end in seconds of video, such as 12.0-15.5"
        raise PydanticCustomError("interval", "{message}", {"message": message})
    return text


def _seconds(interval: str) -> tuple[float, float]:
    start, end = interval.split("-")
    return float(start), float(end)


Interval = Annotated[str, AfterValidator(_interval), WithJsonSchema({"type": "string", "pattern": INTERVAL})]
"""Start and end in seconds of video, such as 12.0-15.5."""
Poses = Literal["auto", "aria", "odometry", "pi3", "none"]


class PlanQuery(Record):
    """A video, the parts of it that are seen, and the number of steps of the plan."""

    video: Place
    """Video file of a head camera, on the machine that predicts."""
    start: Interval
    """Interval of the first action, seconds of video, such as 12.0-15.5."""
    goal: Interval
    """Interval of the last action, such as 60-63; nothing between the two is used."""
    horizon: int = Field(5, ge=SHORTEST_PLAN, le=16)
    """Steps of the plan, including Start and Goal; a horizon of the models' training (usually 3 to 8)."""
    poses: Poses = "auto"
    """Source of the head motion. auto: the best one available; if its kind differs from that of the models' training,
    No-Traj decides. none: No-Traj only."""
    weights: Place | None = None
    """With poses pi3: folder of its weights; None: those named by the run that trained the models."""
    trajectory: Place | None = None
    """Closed-loop poses of Project Aria (closed_loop_trajectory.csv); None: those of the take if the video is a known
    one."""
    calibration: Place | None = None
    """online_calibration.jsonl of `trajectory`; None: searched for next to it."""
    trajectory_offset_s: float | None = Field(None, allow_inf_nan=False)
    """Second of video at which the first pose of `trajectory` was taken; negative where the poses began earlier. Needed
    with `trajectory`, because a wrong guess would change the plan silently."""
    seed: int | None = Field(None, ge=0)
    """Seed of the trained models that are used; None: the first."""
    frames: bool = True
    """Show frames of the videos on the page; switch it off for a page that is shared."""
    out: Place | None = None
    """Folder for plan.json and plan.html; None: predict-NAME below the root."""

    @property
    def start_s(self) -> tuple[float, float]:
        """Interval of the Start clip, seconds."""
        return _seconds(self.start)

    @property
    def goal_s(self) -> tuple[float, float]:
        """Interval of the Goal clip, seconds."""
        return _seconds(self.goal)


class RankedLabel(Record):
    """One candidate label for one step."""

    label_id: str
    label: str
    score: float


class PlanStep(Record):
    """One position of a plan."""

    position: int
    """From 0, the Start, to H - 1, the Goal."""
    role: Literal["start", "middle", "goal"]
    label_id: str
    """Label in the predicted sequence; the first of `top` unless the row decodes jointly."""
    label: str
    top: tuple[RankedLabel, ...]
    """Best five, best first."""


class Retrieved(Record):
    """A retrieved training window."""

    window_id: str
    take_id: str
    take: str
    """Name of the take."""
    split: Split
    cosine: float
    """Cosine between its endpoints and those of the query."""
    labels: tuple[str, ...]
    """Labels of its steps, including Start and Goal."""
    spans_s: tuple[tuple[float, float], ...]
    """Intervals of its steps, seconds of its video."""


class PlanRow(Record):
    """The plan predicted by one row of the tables."""

    row: Variant
    name: str
    decides: bool
    """This row's plan is the answer."""
    scores: Literal["cosine", "probability"]
    """Kind of score of the labels."""
    gate: float | None
    """Probability that a retrieved trajectory helps."""
    threshold: float | None
    """The gate opens from this value on; chosen on dev takes."""
    opened: bool | None
    trusted: Retrieved | None
    """Window whose head motion was used; None if the gate stayed closed, and for rows that do not select one window."""
    undertrained: bool
    """The root's evaluation found a model of this row to be undertrained."""
    steps: tuple[PlanStep, ...]


class Motion(Record):
    """Source of the query's head motion."""

    source: str
    """As in the motions table: aria, odometry, pi3."""
    frame: str
    scale: str
    files: tuple[str, ...]
    clock: str
    """How pose times were mapped to video times, in words."""


class OwnTake(Record):
    """The take of the corpus with the same video, by its content."""

    take_id: str
    name: str
    split: Split
    annotated: tuple[str, ...]
    """Annotated labels from Start to Goal; empty if the annotations do not match the intervals."""


class Plan(Record):
    """Answer to a query: plan.json."""

    format: int
    simulated: bool
    """Models, corpus or both are simulated: the plan says nothing about real recordings."""
    query: PlanQuery
    video_sha256: str
    duration_s: float
    fps: float
    root: str
    corpus: tuple[str, ...]
    """Training corpora of the models."""
    seed: int
    horizon: int
    own_take: OwnTake | None
    motion: Motion | None
    """None: no head motion; only No-Traj predicts."""
    encoder: str
    """Digest of video encoder and preprocessing, the same for query and models."""
    keys: dict[str, str]
    """Stage -> key of the output used."""
    notes: tuple[str, ...]
    """What the reader must know before trusting the plan."""
    rows: tuple[PlanRow, ...]
    """Plans by row, the deciding row first."""
    nearest: tuple[Retrieved, ...]
    """Training windows with the endpoints most similar to the query's, best first; never from the video's own take."""

    @property
    def decided(self) -> PlanRow:
        """Return the row whose plan is the answer."""
        return next(row for row in self.rows if row.decides)
