"""What is asked about a video of one's own, and the plan that comes back (`trajpilot predict`)."""

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


def read_interval(text: str) -> tuple[float, float]:
    """Return start and end of an interval such as `12.0-15.5`, seconds of video.

    Raises:
        ValueError: it is no such text.
    """
    found = re.match(INTERVAL, text)
    if found is None:
        raise ValueError(f"{text!r} is no interval; write start and end in seconds of video, such as 12.0-15.5")
    return float(found[1]), float(found[2])


def _interval(text: str) -> str:
    """Return the text if it is an interval; else pydantic's error in our words."""
    try:
        read_interval(text)
    except ValueError as error:
        raise PydanticCustomError("interval", "{said}", {"said": str(error)}) from error
    return text


Interval = Annotated[str, AfterValidator(_interval), WithJsonSchema({"type": "string", "pattern": INTERVAL})]
"""Start and end in seconds of video, such as 12.0-15.5."""
Poses = Literal["auto", "aria", "odometry", "pi3", "none"]


class PlanQuery(Record):
    """A video, what is seen of it, and how many steps are asked for."""

    video: Place = Field(description="Video file of a head camera, on the machine that predicts.")
    start: Interval = Field(description="When the first action is seen, seconds of video, such as 12.0-15.5.")
    goal: Interval = Field(description="When the last action is seen, such as 60-63; nothing between the two is looked at.")
    horizon: int = Field(5, ge=SHORTEST_PLAN, le=16, description="Steps of the plan, Start and Goal included; what the models were trained for (3 to 8 as a rule).")
    poses: Poses = Field("auto", description="Source of the head motion. auto: the best there is; where that is of another kind than the models know, No-Traj decides. none: No-Traj alone.")
    weights: Place | None = Field(None, description="With poses pi3: folder of its weights; None: those that the models' own run names.")
    trajectory: Place | None = Field(None, description="Closed-loop poses of Project Aria (closed_loop_trajectory.csv) of this recording; None: looked for beside the video.")
    timesync: Place | None = Field(None, description="Table with the device time of every frame (Ego-Exo4D's timesync.csv); None: the first pose is taken as the first frame's time.")
    timesync_start: int | None = Field(None, ge=0, description="Row of the timesync file that is the video's first frame; None: its first, where rows and frames are as many.")
    camera: str | None = Field(None, pattern=r"^[A-Za-z0-9_.-]{1,128}$", description="Camera in the timesync file, such as aria01_214-1; None: its one RGB camera.")
    calibration: Place | None = Field(None, description="online_calibration.jsonl of the recording; None: looked for beside the poses.")
    trajectory_offset_s: float | None = Field(None, allow_inf_nan=False, description="Second of video at which the first pose was taken, where there is no timesync file; below 0 where the poses began earlier.")
    seed: int | None = Field(None, ge=0, description="Which of the trained models; None: the first.")
    frames: bool = Field(True, description="Show frames of the videos on the page; off where it is passed on.")
    out: Place | None = Field(None, description="Folder for plan.json and plan.html; None: predict-NAME below the root.")

    @property
    def start_s(self) -> tuple[float, float]:
        """Interval of the Start clip, seconds."""
        return read_interval(self.start)

    @property
    def goal_s(self) -> tuple[float, float]:
        """Interval of the Goal clip, seconds."""
        return read_interval(self.goal)


class RankedLabel(Record):
    """One answer for one step."""

    label_id: str
    label: str
    score: float


class PlanStep(Record):
    """One position of a plan."""

    position: int
    """From 0, the Start, to H - 1, the Goal."""
    role: Literal["start", "middle", "goal"]
    label_id: str
    """Of the sequence that the row stands for; the first of `top` unless the row decodes jointly."""
    label: str
    top: tuple[RankedLabel, ...]
    """Best five, best first."""


class Retrieved(Record):
    """A training window that was retrieved."""

    window_id: str
    take_id: str
    take: str
    """Its name."""
    split: Split
    cosine: float
    """Of its ends and those of the query."""
    labels: tuple[str, ...]
    """What was done there, Start and Goal included."""
    spans_s: tuple[tuple[float, float], ...]
    """When, seconds of its video."""


class PlanRow(Record):
    """The plan as one row of the tables makes it."""

    row: Variant
    name: str
    decides: bool
    """This row's plan is the answer."""
    scores: Literal["cosine", "probability"]
    """What the scores of the labels are."""
    gate: float | None
    """Scorer: probability that a retrieved trajectory helps. Scorer+: expected gain in M@1 over No-Traj."""
    threshold: float | None
    """The gate opens from here on; decided on dev takes."""
    opened: bool | None
    trusted: Retrieved | None
    """Whose head motion was trusted; None where the gate stayed closed, and for rows that trust no single one."""
    undertrained: bool
    """A model that it rests on was judged undertrained by the evaluation of the root."""
    steps: tuple[PlanStep, ...]


class Motion(Record):
    """Where the query's head motion comes from."""

    source: str
    """As in the controls table: aria, odometry, pi3."""
    frame: str
    scale: str
    files: tuple[str, ...]
    clock: str
    """How times of the poses and of the video were related, in words."""


class OwnTake(Record):
    """The take of the corpus that the video is."""

    take_id: str
    name: str
    split: Split
    matched: Literal["path", "content"]
    annotated: tuple[str, ...]
    """What the corpus says was done from Start to Goal; empty where its annotations do not meet the intervals."""


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
    """What the models were trained on."""
    seed: int
    horizon: int
    own_take: OwnTake | None
    motion: Motion | None
    """None: there is none, and only No-Traj answers."""
    encoder: str
    """Digest of video encoder and preprocessing, equal for the query and the models."""
    keys: dict[str, str]
    """Stage -> key of the output that was used."""
    notes: tuple[str, ...]
    """What must be known before the plan is believed."""
    rows: tuple[PlanRow, ...]
    """The row that decides first."""
    nearest: tuple[Retrieved, ...]
    """Training windows whose ends resemble the query's most, best first; never of the video's own take."""

    @property
    def decided(self) -> PlanRow:
        """The row whose plan is the answer."""
        return next(row for row in self.rows if row.decides)
