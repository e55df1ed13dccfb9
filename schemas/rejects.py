"""Everything that can be wrong with an input, stated once: code, meaning, what to do, severity."""

from enum import StrEnum, auto
from functools import partial
from typing import Any, Literal, Self

from schemas.base import Record

Severity = Literal["drop", "repair", "warn"]


def drop(meaning: str, action: str = "none", *, severity: Severity = "drop", by_choice: bool = False) -> Any:
    """Return the value of a code, by default of one that costs the unit."""
    return auto(), meaning, action, severity, by_choice


choice = partial(drop, by_choice=True)
"""Return the value of a code by which a filter leaves the unit out."""
repair, warn = partial(drop, severity="repair"), partial(drop, severity="warn")
"""Return the values of codes of units that are kept."""


class RejectCode(StrEnum):
    """Codes of the rejects table, with what each means and what the reader can do about it."""

    severity: Severity
    meaning: str
    action: str
    by_choice: bool
    """Given by a filter, not because of damage: an intact Ego-Exo4D download loses most of its descriptions to these,
    so they are counted but do not make an input bad."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name

    def __new__(
        cls, code: str, meaning: str = "", action: str = "", severity: Severity = "drop", by_choice: bool = False
    ) -> Self:
        """Build a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.severity, member.meaning, member.action, member.by_choice = severity, meaning, action, by_choice
        return member

    TAKE_UNKNOWN = drop("an annotation or split names a take without metadata", "download both of one release")
    TAKE_NAME_INVALID = drop("the take's name is not allowed as a folder name", "rename the take or leave it out")
    TAKE_DROPPED = choice("the take is marked as dropped or unvalidated", "none, or --set ingest.keep_unvalidated=true")
    NO_SPLIT = drop("the take has no split, or more than one", "download annotations/splits.json of the same release")
    UNLABELLED = drop("no usable description of the take", "none: it can be predicted, not evaluated")
    VIDEO_MISSING = drop("the take's video is not on disk", "download the take's frame-aligned video")
    WRONG_TYPE = drop("the content of the file does not match its suffix", "download the file again")
    NO_TRAJECTORY = drop("the take has no pose file", "download the take's trajectory, or use an RGB pose source")
    RECORD_MALFORMED = drop(
        "a record lacks a field or has a field of the wrong type", "compare it with its format, or download it again"
    )
    ANNOTATION_REJECTED = choice("the corpus marks the annotation as rejected")
    ANNOTATOR_NOT_CHOSEN = choice("another annotator of the take was chosen", "none: one annotator per take")
    NOT_WEARER = choice("the description is about somebody else", "none, or --set ingest.subjects")
    UNSURE = choice("the annotator was unsure", "none, or --set ingest.drop_unsure=false")
    NOT_EGO_VISIBLE = choice(
        "the head camera does not see the action", "none, or --set ingest.require_ego_visible=false"
    )
    FILTERED = choice("a setting of the corpus leaves it out", "the detail names the setting")
    NO_ATTEMPT = choice(
        "the description is no shot at a basket, nor before one", "none, or --set ingest.basketball.attempts"
    )
    NO_OUTCOME = choice("no text states whether the shot went in", "none, or --set ingest.basketball.made, missed")
    OUTCOME_AMBIGUOUS = choice(
        "the descriptions contradict each other on the outcome", "none, or --set ingest.basketball.both"
    )
    NO_CONTEXT = choice("there is no description before the shot", "none: there is nothing to predict from")
    UNBALANCED = choice("left out to balance made and missed shots", "none, or --set ingest.basketball.balance=false")
    DUPLICATE = choice("an earlier entry has the same text at the same time")
    NOT_RELEVANT = choice(
        "its relevance to the goal is not among those kept", "none, or --set ingest.goalstep.relevance"
    )
    BACKGROUND = choice("the segment is background", "none, or --set ingest.egoper.keep_background=true")
    ERROR_LEFT_OUT = choice("its type of error is left out", "none, or --set ingest.egoper.leave_out")
    LABEL_RARE = choice("the label occurs too rarely in training", "min_label_train of the corpus")
    SPLIT_UNUSED = choice("the video belongs to no split in use", "none, or --set ingest.test_split")
    TOO_EARLY = choice("the action starts too early: no video precedes it", "none, or --set ingest.epic_kitchens.gap_s")
    FIELD_MISSING = repair("a field of the segment is absent", "none: its default is used")
    LABEL_UNKNOWN = drop("an index or class has no name", "download all files of the same release")
    SEGMENT_STRADDLES = repair("the segment spans two video files and was cut to the one that contains its middle")
    SEGMENT_OVERLAP = warn("segments of the take overlap", "none: both are kept")
    TS_INVALID = drop("the time is not a finite, non-negative number", "correct the annotation")
    TS_REORDERED = repair("the descriptions were not in chronological order", "none: they were sorted")
    LABEL_EMPTY = drop("nothing is left of the text after normalisation", "correct the annotation")
    SEGMENT_EMPTY = drop("the interval is empty, or shorter than ingest.min_segment_s", "correct the annotation")
    SEGMENT_CLIPPED = repair("the interval ends after the video and was cut there")
    SEGMENT_OUTSIDE = drop("the interval is mostly or wholly outside the video", "download both of one release")
    TIMESYNC_MISSING = drop("no timesync file, or none with the head camera's column", "download the captures part")
    TIMESYNC_MISMATCH = drop(
        "timesync has not one row per video frame", "download takes.json, captures and video of one release"
    )
    CALIBRATION_MISSING = drop(
        "no T_device_camera of the head camera", "download it, or --set trajectories.frame=device"
    )
    TRAJ_MALFORMED = drop("the pose file lacks columns or has unreadable rows", "download the trajectory again")
    TRAJ_UNSORTED = repair("the pose file was not in chronological order", "none: it was read whole and sorted")
    TRAJ_TRUNCATED = drop("the pose file does not cover the segment", "download the trajectory again")
    TRAJ_GAP = drop(
        "tracking was lost for longer than the limit",
        "none, or raise trajectories.max_inner_gap_s and max_bracket_gap_s with --set",
    )
    TRAJ_LOW_QUALITY = drop("tracking quality below the limit", "none, or lower trajectories.min_quality with --set")
    TRAJ_FRAME_CHANGE = drop("the segment spans two maps with different world frames")
    TRAJ_QUATERNION = drop("a quaternion does not have unit norm", "download the trajectory again")
    TRAJ_NOT_FINITE = drop("a pose contains NaN or infinity", "download the trajectory again")
    POSES_TOO_SHORT = drop(
        "too few different frames to see a motion", "none, or raise trajectories.odometry.rate_hz with --set"
    )
    POSES_FEW_CORNERS = drop(
        "the picture has too few corners to track (dark, blurred, or blank)", "none, or another pose source"
    )
    POSES_LOST = drop(
        "tracking of the corners was lost between two frames (blur, a fast turn, or a cut)",
        "none, or raise trajectories.odometry.rate_hz with --set",
    )
    POSES_STATIC = drop(
        "nothing moves in the picture: a frozen video, or a camera at rest",
        "none, or lower trajectories.odometry.min_motion_px with --set",
    )
    DECODE_FAILED = drop("the video could not be decoded there", "download the video again")
    FRAME_MISMATCH = drop("no frame within half a frame of a wanted time", "download the video again")
    FEATURE_NOT_FINITE = drop(
        "the encoder returned NaN or infinity", "check the checkpoint's digest and --set features.precision"
    )
    FEATURES_MISSING = drop("the take's file of released features is not on disk", "download it (docs/data.md)")
    FEATURES_MALFORMED = drop(
        "the file of released features is damaged, or no tensor of the set's shape", "download it again"
    )
    FEATURES_LENGTH = drop(
        "the rows of the released features cannot be those of a video of this length",
        "none, or raise features.released_off_s with --set",
    )
    FEATURES_OUTSIDE = drop(
        "no row of the released features is inside what may be seen",
        "none: a row that lies outside would show what comes after",
    )
    VFR = warn("the video's frames are not evenly spaced", "none: frames are addressed by time")
    LATE_START = warn(
        "the first picture comes over half a second after the file's time zero; times are counted from that picture",
        "check whether the annotations count from there, too; if not, cut the file again",
    )
    INPUT_UNSTABLE = drop("the file changed while it was read", "run again when nothing writes to the corpus")
    WINDOW_INCOMPLETE = drop(
        "a segment of the window has no feature or no trajectory", "see the rejects of its segments"
    )
    SCENARIO_VANISHED = warn("no take of the scenario is left", "see the rejects of its takes")


class Reject(Record):
    """One row of the rejects table."""

    stage: str
    code: RejectCode
    severity: Severity
    take: str
    segment: str | None
    detail: str
    action: str
    source_file: str | None
    source_offset: int | None
    """Byte, row or list index in the source file, where known."""
    n_units: int
    """Number of units of the stage that are lost; 0 for repair and warn. In = out + sum of these."""


def reject(
    stage: str,
    code: RejectCode,
    take: str,
    detail: str,
    *,
    segment: str | None = None,
    n_units: int = 1,
    source_file: str | None = None,
    source_offset: int | None = None,
) -> Reject:
    """Build a reject with the severity and action of its code; repairs and warnings cost no unit."""
    return Reject(
        stage=stage,
        code=code,
        severity=code.severity,
        take=take,
        segment=segment,
        detail=detail,
        action=code.action,
        source_file=source_file,
        source_offset=source_offset,
        n_units=n_units if code.severity == "drop" else 0,
    )
