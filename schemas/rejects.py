"""Everything that can be wrong with an input, each stated once: code, severity, meaning, what to do."""

from enum import StrEnum
from typing import Literal, NamedTuple

from schemas.base import Record

Severity = Literal["drop", "repair", "warn"]


class RejectCode(StrEnum):
    """Codes of the rejects table; `MEANING` states what each is."""

    TAKE_UNKNOWN = "TAKE_UNKNOWN"
    TAKE_NAME_INVALID = "TAKE_NAME_INVALID"
    TAKE_DROPPED = "TAKE_DROPPED"
    NO_SPLIT = "NO_SPLIT"
    UNLABELLED = "UNLABELLED"
    VIDEO_MISSING = "VIDEO_MISSING"
    WRONG_TYPE = "WRONG_TYPE"
    NO_TRAJECTORY = "NO_TRAJECTORY"
    LEFTOVER_FILE = "LEFTOVER_FILE"
    RECORD_MALFORMED = "RECORD_MALFORMED"
    ANNOTATION_REJECTED = "ANNOTATION_REJECTED"
    ANNOTATOR_NOT_CHOSEN = "ANNOTATOR_NOT_CHOSEN"
    NOT_WEARER = "NOT_WEARER"
    UNSURE = "UNSURE"
    NOT_EGO_VISIBLE = "NOT_EGO_VISIBLE"
    FILTERED = "FILTERED"
    NO_ATTEMPT = "NO_ATTEMPT"
    NO_OUTCOME = "NO_OUTCOME"
    OUTCOME_AMBIGUOUS = "OUTCOME_AMBIGUOUS"
    NO_CONTEXT = "NO_CONTEXT"
    UNBALANCED = "UNBALANCED"
    DUPLICATE = "DUPLICATE"
    NOT_RELEVANT = "NOT_RELEVANT"
    CONTINUED = "CONTINUED"
    NOT_PROCEDURAL = "NOT_PROCEDURAL"
    BACKGROUND = "BACKGROUND"
    ERROR_LEFT_OUT = "ERROR_LEFT_OUT"
    LABEL_RARE = "LABEL_RARE"
    TAKE_SHORT = "TAKE_SHORT"
    SPLIT_UNUSED = "SPLIT_UNUSED"
    TOO_EARLY = "TOO_EARLY"
    FIELD_MISSING = "FIELD_MISSING"
    LABEL_UNKNOWN = "LABEL_UNKNOWN"
    SEGMENT_STRADDLES = "SEGMENT_STRADDLES"
    SEGMENT_OVERLAP = "SEGMENT_OVERLAP"
    SUBSTEP_OUTSIDE = "SUBSTEP_OUTSIDE"
    TS_INVALID = "TS_INVALID"
    TS_REORDERED = "TS_REORDERED"
    LABEL_EMPTY = "LABEL_EMPTY"
    SEGMENT_EMPTY = "SEGMENT_EMPTY"
    SEGMENT_CLIPPED = "SEGMENT_CLIPPED"
    SEGMENT_OUTSIDE = "SEGMENT_OUTSIDE"
    TIMESYNC_MISSING = "TIMESYNC_MISSING"
    TIMESYNC_MISMATCH = "TIMESYNC_MISMATCH"
    CALIBRATION_MISSING = "CALIBRATION_MISSING"
    TRAJ_MALFORMED = "TRAJ_MALFORMED"
    TRAJ_UNSORTED = "TRAJ_UNSORTED"
    TRAJ_TRUNCATED = "TRAJ_TRUNCATED"
    TRAJ_GAP = "TRAJ_GAP"
    TRAJ_LOW_QUALITY = "TRAJ_LOW_QUALITY"
    TRAJ_FRAME_CHANGE = "TRAJ_FRAME_CHANGE"
    TRAJ_QUATERNION = "TRAJ_QUATERNION"
    TRAJ_NOT_FINITE = "TRAJ_NOT_FINITE"
    POSES_TOO_SHORT = "POSES_TOO_SHORT"
    POSES_FEW_CORNERS = "POSES_FEW_CORNERS"
    POSES_LOST = "POSES_LOST"
    POSES_STATIC = "POSES_STATIC"
    DECODE_FAILED = "DECODE_FAILED"
    FRAME_MISMATCH = "FRAME_MISMATCH"
    FEATURE_NOT_FINITE = "FEATURE_NOT_FINITE"
    FEATURES_MISSING = "FEATURES_MISSING"
    FEATURES_MALFORMED = "FEATURES_MALFORMED"
    FEATURES_LENGTH = "FEATURES_LENGTH"
    FEATURES_OUTSIDE = "FEATURES_OUTSIDE"
    VFR = "VFR"
    LATE_START = "LATE_START"
    INPUT_UNSTABLE = "INPUT_UNSTABLE"
    WINDOW_INCOMPLETE = "WINDOW_INCOMPLETE"
    SCENARIO_VANISHED = "SCENARIO_VANISHED"


class Meaning(NamedTuple):
    """What a code means and what the reader can do about it."""

    severity: Severity
    meaning: str
    action: str


MEANING: dict[RejectCode, Meaning] = {
    RejectCode.TAKE_UNKNOWN: Meaning(
        "drop",
        "an annotation or split names a take that is missing in the metadata of the corpus",
        "download metadata and annotations of the same release",
    ),
    RejectCode.TAKE_NAME_INVALID: Meaning(
        "drop", "the take's name is not allowed as a folder name", "rename the take or leave it out"
    ),
    RejectCode.TAKE_DROPPED: Meaning(
        "drop", "the corpus marks the take as dropped or not validated", "none, or --set ingest.keep_unvalidated=true"
    ),
    RejectCode.NO_SPLIT: Meaning(
        "drop", "the take has no split, or more than one", "download annotations/splits.json of the same release"
    ),
    RejectCode.UNLABELLED: Meaning(
        "drop", "no usable description of the take", "none: it can be predicted, not evaluated"
    ),
    RejectCode.VIDEO_MISSING: Meaning(
        "drop", "the take's video is not on disk", "download the take's frame-aligned video"
    ),
    RejectCode.WRONG_TYPE: Meaning("drop", "the file is not what its suffix says", "download the file again"),
    RejectCode.NO_TRAJECTORY: Meaning(
        "drop", "the take has no pose file", "download the take's trajectory, or use an RGB pose source"
    ),
    RejectCode.LEFTOVER_FILE: Meaning(
        "warn", "a temporary file left behind by a broken download", "delete it and download again"
    ),
    RejectCode.RECORD_MALFORMED: Meaning(
        "drop",
        "a record lacks a field or has a field of the wrong type",
        "compare it with the format page, or download it again",
    ),
    RejectCode.ANNOTATION_REJECTED: Meaning("drop", "the corpus marks the annotation as rejected", "none"),
    RejectCode.ANNOTATOR_NOT_CHOSEN: Meaning(
        "drop", "another annotator of the take was chosen", "none: one annotator per take"
    ),
    RejectCode.NOT_WEARER: Meaning("drop", "the description is about somebody else", "none, or --set ingest.subjects"),
    RejectCode.UNSURE: Meaning("drop", "the annotator was unsure", "none, or --set ingest.drop_unsure=false"),
    RejectCode.NOT_EGO_VISIBLE: Meaning(
        "drop", "the action is not visible from the head camera", "none, or --set ingest.require_ego_visible=false"
    ),
    RejectCode.FILTERED: Meaning("drop", "a setting of the corpus leaves it out", "the detail names the setting"),
    RejectCode.NO_ATTEMPT: Meaning(
        "drop",
        "the description is neither a shot at a basket nor the one before a shot",
        "none, or --set ingest.basketball.attempts",
    ),
    RejectCode.NO_OUTCOME: Meaning(
        "drop", "no text states whether the shot went in", "none, or --set ingest.basketball.made, missed and evidence"
    ),
    RejectCode.OUTCOME_AMBIGUOUS: Meaning(
        "drop", "the descriptions deny that the shot went in, or say both", "none, or --set ingest.basketball.both"
    ),
    RejectCode.NO_CONTEXT: Meaning(
        "drop", "there is no description before the shot", "none: there is nothing to predict from"
    ),
    RejectCode.UNBALANCED: Meaning(
        "drop", "left out to keep as many made as missed shots", "none, or --set ingest.basketball.balance=false"
    ),
    RejectCode.DUPLICATE: Meaning("drop", "an earlier entry has the same text at the same time", "none"),
    RejectCode.NOT_RELEVANT: Meaning(
        "drop", "the step is of another relevance to the goal", "none, or --set ingest.goalstep.relevance"
    ),
    RejectCode.CONTINUED: Meaning(
        "drop", "the step continues an interrupted one", "none, or --set ingest.goalstep.keep_continued=true"
    ),
    RejectCode.NOT_PROCEDURAL: Meaning(
        "drop", "the step is not marked as procedural", "none, or --set ingest.goalstep.procedural_only=false"
    ),
    RejectCode.BACKGROUND: Meaning(
        "drop", "the segment is background", "none, or --set ingest.egoper.keep_background=true"
    ),
    RejectCode.ERROR_LEFT_OUT: Meaning(
        "drop", "the segment has an error of a type that is left out", "none, or --set ingest.egoper.leave_out"
    ),
    RejectCode.LABEL_RARE: Meaning("drop", "the label occurs too rarely in training", "min_label_train of the corpus"),
    RejectCode.TAKE_SHORT: Meaning(
        "drop", "the entry has too few segments left", "none, or --set ingest.goalstep.min_segments"
    ),
    RejectCode.SPLIT_UNUSED: Meaning(
        "drop", "the video is in no split that is used here", "none, or --set ingest.test_split"
    ),
    RejectCode.TOO_EARLY: Meaning(
        "drop",
        "the action starts so early that there is nothing to see before it",
        "none, or --set ingest.epic_kitchens.gap_s",
    ),
    RejectCode.FIELD_MISSING: Meaning(
        "repair", "a field of the segment is absent", "none: its default is used (docs/decisions/segment-corpora.md)"
    ),
    RejectCode.LABEL_UNKNOWN: Meaning(
        "drop", "an index or class has no name", "download all files of the same release"
    ),
    RejectCode.SEGMENT_STRADDLES: Meaning(
        "repair", "the segment spans two video files and was cut to the one that contains its middle", "none"
    ),
    RejectCode.SEGMENT_OVERLAP: Meaning("warn", "segments of the take overlap", "none: both are kept"),
    RejectCode.SUBSTEP_OUTSIDE: Meaning("warn", "a substep lies outside its step", "none: it is kept as annotated"),
    RejectCode.TS_INVALID: Meaning("drop", "the time is not a finite, non-negative number", "correct the annotation"),
    RejectCode.TS_REORDERED: Meaning(
        "repair", "the descriptions were not in chronological order", "none: they were sorted"
    ),
    RejectCode.LABEL_EMPTY: Meaning(
        "drop", "nothing is left of the text after normalisation", "correct the annotation"
    ),
    RejectCode.SEGMENT_EMPTY: Meaning(
        "drop", "the interval is empty, or shorter than ingest.min_segment_s", "correct the annotation"
    ),
    RejectCode.SEGMENT_CLIPPED: Meaning("repair", "the interval ends after the video and was cut there", "none"),
    RejectCode.SEGMENT_OUTSIDE: Meaning(
        "drop",
        "the interval lies mostly or wholly outside the video",
        "compare the annotation's release with the video's",
    ),
    RejectCode.TIMESYNC_MISSING: Meaning(
        "drop", "no timesync file, or none with the head camera's column", "download the captures part"
    ),
    RejectCode.TIMESYNC_MISMATCH: Meaning(
        "drop",
        "the numbers of timesync rows and video frames do not match",
        "download takes.json, captures and video of one release",
    ),
    RejectCode.CALIBRATION_MISSING: Meaning(
        "drop",
        "no T_device_camera of the head camera",
        "download online_calibration.jsonl, or --set trajectories.frame=device",
    ),
    RejectCode.TRAJ_MALFORMED: Meaning(
        "drop", "the pose file lacks columns or has unreadable rows", "download the trajectory again"
    ),
    RejectCode.TRAJ_UNSORTED: Meaning(
        "repair", "the pose file was not in chronological order", "none: it was read whole and sorted"
    ),
    RejectCode.TRAJ_TRUNCATED: Meaning(
        "drop", "the pose file does not cover the segment", "download the trajectory again"
    ),
    RejectCode.TRAJ_GAP: Meaning(
        "drop",
        "tracking was lost for longer than the limit",
        "none, or raise trajectories.max_inner_gap_s and max_bracket_gap_s with --set",
    ),
    RejectCode.TRAJ_LOW_QUALITY: Meaning(
        "drop", "tracking quality below the limit", "none, or lower trajectories.min_quality with --set"
    ),
    RejectCode.TRAJ_FRAME_CHANGE: Meaning("drop", "the segment spans two maps with different world frames", "none"),
    RejectCode.TRAJ_QUATERNION: Meaning(
        "drop", "a quaternion does not have unit norm", "download the trajectory again"
    ),
    RejectCode.TRAJ_NOT_FINITE: Meaning("drop", "a pose contains NaN or infinity", "download the trajectory again"),
    RejectCode.POSES_TOO_SHORT: Meaning(
        "drop", "too few different frames to see a motion", "none, or raise trajectories.odometry.rate_hz with --set"
    ),
    RejectCode.POSES_FEW_CORNERS: Meaning(
        "drop", "the picture has too few corners to track (dark, blurred, or blank)", "none, or another pose source"
    ),
    RejectCode.POSES_LOST: Meaning(
        "drop",
        "tracking of the corners was lost between two frames (blur, a fast turn, or a cut)",
        "none, or raise trajectories.odometry.rate_hz with --set",
    ),
    RejectCode.POSES_STATIC: Meaning(
        "drop",
        "nothing moves in the picture: a frozen video, or a camera that lies still",
        "none, or lower trajectories.odometry.min_motion_px with --set",
    ),
    RejectCode.DECODE_FAILED: Meaning("drop", "the video could not be decoded there", "download the video again"),
    RejectCode.FRAME_MISMATCH: Meaning(
        "drop", "no frame within half a frame of a wanted time", "download the video again"
    ),
    RejectCode.FEATURE_NOT_FINITE: Meaning(
        "drop", "the encoder returned NaN or infinity", "check the checkpoint's digest and --set features.precision"
    ),
    RejectCode.FEATURES_MISSING: Meaning(
        "drop", "the take's file of released features is not on disk", "download it (docs/data.md)"
    ),
    RejectCode.FEATURES_MALFORMED: Meaning(
        "drop", "the file of released features is damaged, or no tensor of the set's shape", "download it again"
    ),
    RejectCode.FEATURES_LENGTH: Meaning(
        "drop",
        "the rows of the released features cannot be those of a video of this length",
        "none, or raise features.released_off_s with --set",
    ),
    RejectCode.FEATURES_OUTSIDE: Meaning(
        "drop",
        "no row of the released features lies inside what may be seen",
        "none: a row that lies outside would show what comes after",
    ),
    RejectCode.VFR: Meaning("warn", "the video's frames are not evenly spaced", "none: frames are addressed by time"),
    RejectCode.LATE_START: Meaning(
        "warn",
        "the first picture is shown later than half a second after the file's time zero; times are counted from that "
        "picture",
        "check whether the annotations count from there, too; if not, cut the file again",
    ),
    RejectCode.INPUT_UNSTABLE: Meaning(
        "drop", "the file changed while it was read", "run again when nothing writes to the corpus"
    ),
    RejectCode.WINDOW_INCOMPLETE: Meaning(
        "drop", "a segment of the window has no feature or no trajectory", "see the rejects of its segments"
    ),
    RejectCode.SCENARIO_VANISHED: Meaning("warn", "no take of the scenario is left", "see the rejects of its takes"),
}

BY_CHOICE = frozenset(
    {
        RejectCode.ANNOTATION_REJECTED,
        RejectCode.ANNOTATOR_NOT_CHOSEN,
        RejectCode.NOT_WEARER,
        RejectCode.UNSURE,
        RejectCode.NOT_EGO_VISIBLE,
        RejectCode.DUPLICATE,
        RejectCode.TAKE_DROPPED,
        RejectCode.NOT_RELEVANT,
        RejectCode.CONTINUED,
        RejectCode.NOT_PROCEDURAL,
        RejectCode.BACKGROUND,
        RejectCode.ERROR_LEFT_OUT,
        RejectCode.LABEL_RARE,
        RejectCode.TAKE_SHORT,
        RejectCode.SPLIT_UNUSED,
        RejectCode.TOO_EARLY,
        RejectCode.FILTERED,
        RejectCode.NO_ATTEMPT,
        RejectCode.NO_OUTCOME,
        RejectCode.OUTCOME_AMBIGUOUS,
        RejectCode.NO_CONTEXT,
        RejectCode.UNBALANCED,
    }
)
"""Codes given by a filter, not because of damage: an intact Ego-Exo4D download loses most of its descriptions to them,
so they are counted but do not mean that an input is bad."""


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
    """Build a reject with the severity and action of its code; repair and warn cost no unit."""
    severity, _, action = MEANING[code]
    return Reject(
        stage=stage,
        code=code,
        severity=severity,
        take=take,
        segment=segment,
        detail=detail,
        action=action,
        source_file=source_file,
        source_offset=source_offset,
        n_units=n_units if severity == "drop" else 0,
    )
