"""Everything that can be wrong with an input, once: code, severity, meaning, what to do."""

from enum import StrEnum
from typing import Literal, NamedTuple

from schemas.base import Record

Severity = Literal["drop", "repair", "warn"]


class RejectCode(StrEnum):
    """Codes of the rejects table; `MEANING` says what each is."""

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
    VFR = "VFR"
    LATE_START = "LATE_START"
    INPUT_UNSTABLE = "INPUT_UNSTABLE"
    WINDOW_INCOMPLETE = "WINDOW_INCOMPLETE"
    SCENARIO_VANISHED = "SCENARIO_VANISHED"


class Meaning(NamedTuple):
    """What a code says and what its reader can do."""

    severity: Severity
    meaning: str
    action: str


MEANING: dict[RejectCode, Meaning] = {
    RejectCode.TAKE_UNKNOWN: Meaning("drop", "an annotation or split names a take that the metadata of the corpus lack", "fetch the metadata and annotations of one release"),
    RejectCode.TAKE_NAME_INVALID: Meaning("drop", "the take's name cannot be a folder name", "rename the take or leave it out"),
    RejectCode.TAKE_DROPPED: Meaning("drop", "the corpus marks the take as dropped or not validated", "none, or set IngestConfig.keep_unvalidated"),
    RejectCode.NO_SPLIT: Meaning("drop", "the take has no split, or more than one", "fetch annotations/splits.json of the same release"),
    RejectCode.UNLABELLED: Meaning("drop", "no usable description of the take", "none: it can be predicted, not evaluated"),
    RejectCode.VIDEO_MISSING: Meaning("drop", "the take's video is not on disk", "download the take's frame-aligned video"),
    RejectCode.WRONG_TYPE: Meaning("drop", "the file is not what its suffix says", "download the file again"),
    RejectCode.NO_TRAJECTORY: Meaning("drop", "the take has no pose file", "download the take's trajectory, or use an RGB pose source"),
    RejectCode.LEFTOVER_FILE: Meaning("warn", "a temporary name left by a broken download", "delete it and download again"),
    RejectCode.RECORD_MALFORMED: Meaning("drop", "a record lacks a field or has one of another type", "compare with the format page, download again"),
    RejectCode.ANNOTATION_REJECTED: Meaning("drop", "the corpus marks the annotation as rejected", "none"),
    RejectCode.ANNOTATOR_NOT_CHOSEN: Meaning("drop", "another annotator of the take was taken", "none: one annotator per take"),
    RejectCode.NOT_WEARER: Meaning("drop", "the description is about somebody else", "IngestConfig.subjects"),
    RejectCode.UNSURE: Meaning("drop", "the annotator was unsure", "IngestConfig.drop_unsure"),
    RejectCode.NOT_EGO_VISIBLE: Meaning("drop", "the action is not visible from the head camera", "IngestConfig.require_ego_visible"),
    RejectCode.FILTERED: Meaning("drop", "a setting of the corpus leaves it out", "the detail names the setting"),
    RejectCode.NO_ATTEMPT: Meaning("drop", "the description is no shot at a basket, nor the one before a shot", "none, or IngestConfig.basketball.attempts"),
    RejectCode.NO_OUTCOME: Meaning("drop", "nothing says whether the shot went in", "none, or IngestConfig.basketball.made, missed and evidence"),
    RejectCode.OUTCOME_AMBIGUOUS: Meaning("drop", "what is said of the shot denies that it went in, or says both", "none, or IngestConfig.basketball.both"),
    RejectCode.NO_CONTEXT: Meaning("drop", "no description stands before the shot", "none: there is nothing to predict from"),
    RejectCode.UNBALANCED: Meaning("drop", "left out so that as many shots were made as missed", "none, or IngestConfig.basketball.balance"),
    RejectCode.DUPLICATE: Meaning("drop", "the same text at the same time stands there before", "none"),
    RejectCode.NOT_RELEVANT: Meaning("drop", "the step is of another relevance to the goal", "IngestConfig.goalstep.relevance"),
    RejectCode.CONTINUED: Meaning("drop", "the step continues an interrupted one", "IngestConfig.goalstep.keep_continued"),
    RejectCode.NOT_PROCEDURAL: Meaning("drop", "the step is not marked as procedural", "IngestConfig.goalstep.procedural_only"),
    RejectCode.BACKGROUND: Meaning("drop", "the segment is background", "IngestConfig.egoper.keep_background"),
    RejectCode.ERROR_LEFT_OUT: Meaning("drop", "the segment has an error of a type that is left out", "IngestConfig.egoper.leave_out"),
    RejectCode.LABEL_RARE: Meaning("drop", "the label stands too seldom in training", "min_label_train of the corpus"),
    RejectCode.TAKE_SHORT: Meaning("drop", "the entry has too few segments left", "IngestConfig.goalstep.min_segments"),
    RejectCode.SPLIT_UNUSED: Meaning("drop", "the video is in no split that is used here", "none, or set IngestConfig.test_split"),
    RejectCode.TOO_EARLY: Meaning("drop", "the action starts so early that nothing may be seen before it", "IngestConfig.epic_kitchens.gap_s"),
    RejectCode.FIELD_MISSING: Meaning("repair", "a field of the segment is absent", "none: its default stands in (docs/decisions/segment-corpora.md)"),
    RejectCode.LABEL_UNKNOWN: Meaning("drop", "an index or class has no name", "fetch the files of one release"),
    RejectCode.SEGMENT_STRADDLES: Meaning("repair", "the segment lies over two video files and was cut to the one that holds its middle", "none"),
    RejectCode.SEGMENT_OVERLAP: Meaning("warn", "segments of the take overlap", "none: both are kept"),
    RejectCode.SUBSTEP_OUTSIDE: Meaning("warn", "a substep lies outside of its step", "none: it is kept as annotated"),
    RejectCode.TS_INVALID: Meaning("drop", "the time is not a finite, non-negative number", "correct the annotation"),
    RejectCode.TS_REORDERED: Meaning("repair", "the descriptions were not in order of time", "none: they were sorted"),
    RejectCode.LABEL_EMPTY: Meaning("drop", "nothing is left of the text after normalisation", "correct the annotation"),
    RejectCode.SEGMENT_EMPTY: Meaning("drop", "the interval has no length, or less than IngestConfig.min_segment_s", "correct the annotation"),
    RejectCode.SEGMENT_CLIPPED: Meaning("repair", "the interval ends after the video and was cut there", "none"),
    RejectCode.SEGMENT_OUTSIDE: Meaning("drop", "the interval lies mostly or wholly outside the video", "compare the annotation's release with the video's"),
    RejectCode.TIMESYNC_MISSING: Meaning("drop", "no timesync file, or none with the head camera's column", "download the captures part"),
    RejectCode.TIMESYNC_MISMATCH: Meaning("drop", "timesync rows and video frames do not match in number", "download takes.json, captures and video of one release"),
    RejectCode.CALIBRATION_MISSING: Meaning("drop", "no T_device_camera of the head camera", "download online_calibration.jsonl, or set TrajectoryConfig.frame to device"),
    RejectCode.TRAJ_MALFORMED: Meaning("drop", "the pose file lacks columns or has unreadable rows", "download the trajectory again"),
    RejectCode.TRAJ_UNSORTED: Meaning("repair", "the pose file was not in order of time", "none: it was read whole and sorted"),
    RejectCode.TRAJ_TRUNCATED: Meaning("drop", "the pose file does not cover the segment", "download the trajectory again"),
    RejectCode.TRAJ_GAP: Meaning("drop", "tracking was lost for longer than the limit", "none, or raise TrajectoryConfig.max_*_gap_s"),
    RejectCode.TRAJ_LOW_QUALITY: Meaning("drop", "tracking quality below the limit", "none, or lower TrajectoryConfig.min_quality"),
    RejectCode.TRAJ_FRAME_CHANGE: Meaning("drop", "the segment spans two maps with different world frames", "none"),
    RejectCode.TRAJ_QUATERNION: Meaning("drop", "a quaternion is not of unit norm", "download the trajectory again"),
    RejectCode.TRAJ_NOT_FINITE: Meaning("drop", "a pose holds NaN or infinity", "download the trajectory again"),
    RejectCode.POSES_TOO_SHORT: Meaning("drop", "too few different frames to see a motion", "none, or raise OdometryConfig.rate_hz"),
    RejectCode.POSES_FEW_CORNERS: Meaning("drop", "the picture shows too few corners to follow (dark, blurred, or blank)", "none, or another pose source"),
    RejectCode.POSES_LOST: Meaning("drop", "the corners were lost between two frames (blur, a fast turn, or a cut)", "none, or raise OdometryConfig.rate_hz"),
    RejectCode.POSES_STATIC: Meaning("drop", "nothing moves in the picture: a frozen video, or a camera that lies still", "none, or lower OdometryConfig.min_motion_px"),
    RejectCode.DECODE_FAILED: Meaning("drop", "the video could not be decoded there", "download the video again"),
    RejectCode.FRAME_MISMATCH: Meaning("drop", "no frame within half a frame of a wanted time", "download the video again"),
    RejectCode.FEATURE_NOT_FINITE: Meaning("drop", "the encoder returned NaN or infinity", "check the checkpoint's digest and FeatureConfig.precision"),
    RejectCode.VFR: Meaning("warn", "the video's frames are not evenly spaced", "none: frames are addressed by time"),
    RejectCode.LATE_START: Meaning("warn", "the first picture is shown later than half a second after the file's time zero; times are counted from that picture", "look whether the annotations count from there too; where not, cut the file anew"),
    RejectCode.INPUT_UNSTABLE: Meaning("drop", "the file changed while it was read", "run again when nothing writes to the corpus"),
    RejectCode.WINDOW_INCOMPLETE: Meaning("drop", "a segment of the window has no feature or no trajectory", "see the rejects of its segments"),
    RejectCode.SCENARIO_VANISHED: Meaning("warn", "no take of the scenario is left", "see the rejects of its takes"),
}  # fmt: skip

BY_CHOICE = frozenset({
    RejectCode.ANNOTATION_REJECTED, RejectCode.ANNOTATOR_NOT_CHOSEN, RejectCode.NOT_WEARER, RejectCode.UNSURE,
    RejectCode.NOT_EGO_VISIBLE, RejectCode.DUPLICATE, RejectCode.TAKE_DROPPED, RejectCode.NOT_RELEVANT,
    RejectCode.CONTINUED, RejectCode.NOT_PROCEDURAL, RejectCode.BACKGROUND, RejectCode.ERROR_LEFT_OUT,
    RejectCode.LABEL_RARE, RejectCode.TAKE_SHORT, RejectCode.SPLIT_UNUSED, RejectCode.TOO_EARLY,
    RejectCode.FILTERED, RejectCode.NO_ATTEMPT, RejectCode.NO_OUTCOME, RejectCode.OUTCOME_AMBIGUOUS, RejectCode.NO_CONTEXT,
    RejectCode.UNBALANCED,
})  # fmt: skip
"""Codes that a filter gives, not damage: a healthy Ego-Exo4D download loses most of its descriptions to them, so they are
counted but do not say that an input is bad."""


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
    """Rows of the stage's unit that this costs; 0 for repair and warn. In = out + sum of these."""


def reject(
    stage: str, code: RejectCode, take: str, detail: str, *,
    segment: str | None = None, n_units: int = 1, source_file: str | None = None, source_offset: int | None = None,
) -> Reject:  # fmt: skip
    """Build a reject with the severity and action of its code; repair and warn cost no unit."""
    severity, _, action = MEANING[code]
    return Reject(
        stage=stage, code=code, severity=severity, take=take, segment=segment, detail=detail, action=action,
        source_file=source_file, source_offset=source_offset, n_units=n_units if severity == "drop" else 0,
    )  # fmt: skip
