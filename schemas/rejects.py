"""Everything that can be wrong with an input, stated once: code, meaning, what to do, severity."""

from enum import StrEnum, auto
from typing import Literal, Self

from schemas.base import Record

Severity = Literal["drop", "repair", "warn"]


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
        cls, code: str, meaning: str = "", action: str = "none", kind: Severity | Literal["choice"] = "drop"
    ) -> Self:
        """Build a member whose value is its code; kind `choice` is a drop that a filter chose."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.severity = "drop" if kind == "choice" else kind
        member.meaning, member.action, member.by_choice = meaning, action, kind == "choice"
        return member

    TAKE_UNKNOWN = (
        auto(),
        "an annotation or split names a take that is missing in the metadata of the corpus",
        "download metadata and annotations of the same release",
    )
    TAKE_NAME_INVALID = auto(), "the take's name is not allowed as a folder name", "rename the take or leave it out"
    TAKE_DROPPED = (
        auto(),
        "the corpus marks the take as dropped or not validated",
        "none, or --set ingest.keep_unvalidated=true",
        "choice",
    )
    NO_SPLIT = auto(), "the take has no split, or more than one", "download annotations/splits.json of the same release"
    UNLABELLED = auto(), "no usable description of the take", "none: it can be predicted, not evaluated"
    VIDEO_MISSING = auto(), "the take's video is not on disk", "download the take's frame-aligned video"
    WRONG_TYPE = auto(), "the content of the file does not match its suffix", "download the file again"
    NO_TRAJECTORY = auto(), "the take has no pose file", "download the take's trajectory, or use an RGB pose source"
    LEFTOVER_FILE = auto(), "a temporary file left behind by a broken download", "delete it and download again", "warn"
    RECORD_MALFORMED = (
        auto(),
        "a record lacks a field or has a field of the wrong type",
        "compare it with the format page, or download it again",
    )
    ANNOTATION_REJECTED = auto(), "the corpus marks the annotation as rejected", "none", "choice"
    ANNOTATOR_NOT_CHOSEN = auto(), "another annotator of the take was chosen", "none: one annotator per take", "choice"
    NOT_WEARER = auto(), "the description is about somebody else", "none, or --set ingest.subjects", "choice"
    UNSURE = auto(), "the annotator was unsure", "none, or --set ingest.drop_unsure=false", "choice"
    NOT_EGO_VISIBLE = (
        auto(),
        "the action is not visible from the head camera",
        "none, or --set ingest.require_ego_visible=false",
        "choice",
    )
    FILTERED = auto(), "a setting of the corpus leaves it out", "the detail names the setting", "choice"
    NO_ATTEMPT = (
        auto(),
        "the description is neither a shot at a basket nor the one before a shot",
        "none, or --set ingest.basketball.attempts",
        "choice",
    )
    NO_OUTCOME = (
        auto(),
        "no text states whether the shot went in",
        "none, or --set ingest.basketball.made, missed and evidence",
        "choice",
    )
    OUTCOME_AMBIGUOUS = (
        auto(),
        "the descriptions contradict each other about the outcome of the shot",
        "none, or --set ingest.basketball.both",
        "choice",
    )
    NO_CONTEXT = auto(), "there is no description before the shot", "none: there is nothing to predict from", "choice"
    UNBALANCED = (
        auto(),
        "left out to balance made and missed shots",
        "none, or --set ingest.basketball.balance=false",
        "choice",
    )
    DUPLICATE = auto(), "an earlier entry has the same text at the same time", "none", "choice"
    NOT_RELEVANT = (
        auto(),
        "the step's relevance to the goal is not among those kept",
        "none, or --set ingest.goalstep.relevance",
        "choice",
    )
    BACKGROUND = auto(), "the segment is background", "none, or --set ingest.egoper.keep_background=true", "choice"
    ERROR_LEFT_OUT = (
        auto(),
        "the segment has an error of a type that is left out",
        "none, or --set ingest.egoper.leave_out",
        "choice",
    )
    LABEL_RARE = auto(), "the label occurs too rarely in training", "min_label_train of the corpus", "choice"
    SPLIT_UNUSED = auto(), "the video belongs to no split in use", "none, or --set ingest.test_split", "choice"
    TOO_EARLY = (
        auto(),
        "the action starts too early: no video precedes it",
        "none, or --set ingest.epic_kitchens.gap_s",
        "choice",
    )
    FIELD_MISSING = (
        auto(),
        "a field of the segment is absent",
        "none: its default is used (docs/decisions/segment-corpora.md)",
        "repair",
    )
    LABEL_UNKNOWN = auto(), "an index or class has no name", "download all files of the same release"
    SEGMENT_STRADDLES = (
        auto(),
        "the segment spans two video files and was cut to the one that contains its middle",
        "none",
        "repair",
    )
    SEGMENT_OVERLAP = auto(), "segments of the take overlap", "none: both are kept", "warn"
    TS_INVALID = auto(), "the time is not a finite, non-negative number", "correct the annotation"
    TS_REORDERED = auto(), "the descriptions were not in chronological order", "none: they were sorted", "repair"
    LABEL_EMPTY = auto(), "nothing is left of the text after normalisation", "correct the annotation"
    SEGMENT_EMPTY = auto(), "the interval is empty, or shorter than ingest.min_segment_s", "correct the annotation"
    SEGMENT_CLIPPED = auto(), "the interval ends after the video and was cut there", "none", "repair"
    SEGMENT_OUTSIDE = (
        auto(),
        "the interval is mostly or wholly outside the video",
        "compare the annotation's release with the video's",
    )
    TIMESYNC_MISSING = auto(), "no timesync file, or none with the head camera's column", "download the captures part"
    TIMESYNC_MISMATCH = (
        auto(),
        "the numbers of timesync rows and video frames do not match",
        "download takes.json, captures and video of one release",
    )
    CALIBRATION_MISSING = (
        auto(),
        "no T_device_camera of the head camera",
        "download online_calibration.jsonl, or --set trajectories.frame=device",
    )
    TRAJ_MALFORMED = auto(), "the pose file lacks columns or has unreadable rows", "download the trajectory again"
    TRAJ_UNSORTED = (
        auto(),
        "the pose file was not in chronological order",
        "none: it was read whole and sorted",
        "repair",
    )
    TRAJ_TRUNCATED = auto(), "the pose file does not cover the segment", "download the trajectory again"
    TRAJ_GAP = (
        auto(),
        "tracking was lost for longer than the limit",
        "none, or raise trajectories.max_inner_gap_s and max_bracket_gap_s with --set",
    )
    TRAJ_LOW_QUALITY = auto(), "tracking quality below the limit", "none, or lower trajectories.min_quality with --set"
    TRAJ_FRAME_CHANGE = auto(), "the segment spans two maps with different world frames"
    TRAJ_QUATERNION = auto(), "a quaternion does not have unit norm", "download the trajectory again"
    TRAJ_NOT_FINITE = auto(), "a pose contains NaN or infinity", "download the trajectory again"
    POSES_TOO_SHORT = (
        auto(),
        "too few different frames to see a motion",
        "none, or raise trajectories.odometry.rate_hz with --set",
    )
    POSES_FEW_CORNERS = (
        auto(),
        "the picture has too few corners to track (dark, blurred, or blank)",
        "none, or another pose source",
    )
    POSES_LOST = (
        auto(),
        "tracking of the corners was lost between two frames (blur, a fast turn, or a cut)",
        "none, or raise trajectories.odometry.rate_hz with --set",
    )
    POSES_STATIC = (
        auto(),
        "nothing moves in the picture: a frozen video, or a camera at rest",
        "none, or lower trajectories.odometry.min_motion_px with --set",
    )
    DECODE_FAILED = auto(), "the video could not be decoded there", "download the video again"
    FRAME_MISMATCH = auto(), "no frame within half a frame of a wanted time", "download the video again"
    FEATURE_NOT_FINITE = (
        auto(),
        "the encoder returned NaN or infinity",
        "check the checkpoint's digest and --set features.precision",
    )
    FEATURES_MISSING = auto(), "the take's file of released features is not on disk", "download it (docs/data.md)"
    FEATURES_MALFORMED = (
        auto(),
        "the file of released features is damaged, or no tensor of the set's shape",
        "download it again",
    )
    FEATURES_LENGTH = (
        auto(),
        "the rows of the released features cannot be those of a video of this length",
        "none, or raise features.released_off_s with --set",
    )
    FEATURES_OUTSIDE = (
        auto(),
        "no row of the released features is inside what may be seen",
        "none: a row that lies outside would show what comes after",
    )
    VFR = auto(), "the video's frames are not evenly spaced", "none: frames are addressed by time", "warn"
    LATE_START = (
        auto(),
        "the first picture comes over half a second after the file's time zero; times are counted from that picture",
        "check whether the annotations count from there, too; if not, cut the file again",
        "warn",
    )
    INPUT_UNSTABLE = auto(), "the file changed while it was read", "run again when nothing writes to the corpus"
    WINDOW_INCOMPLETE = (
        auto(),
        "a segment of the window has no feature or no trajectory",
        "see the rejects of its segments",
    )
    SCENARIO_VANISHED = auto(), "no take of the scenario is left", "see the rejects of its takes", "warn"


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
