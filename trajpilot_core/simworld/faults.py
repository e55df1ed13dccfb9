"""What is broken on purpose, once: every kind, the reject codes that it may give, and how the files are damaged.

A kind that means the same in several layouts has one name; each layout lists those that it can have and the place of a
damaged record; `layouts/spans.py` damages segments.
A fault changes files only, as real corruption would; the truth of the take stays as it was drawn.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from schemas.rejects import RejectCode as Code
from trajpilot_core.simworld.world.truth import TakeTruth

Json = dict[str, Any]
F = TypeVar("F")


Faults = Mapping[str, tuple[Code, ...]]
"""Kind of damage -> reject codes, at least one of which must be in the rejects of the take."""
TAKE_FAULTS: Faults = {
    "video_missing": (Code.VIDEO_MISSING,),
    "video_text": (Code.WRONG_TYPE,),
    "video_no_index": (Code.DECODE_FAILED, Code.WRONG_TYPE),
    "video_half": (Code.TIMESYNC_MISMATCH, Code.DECODE_FAILED, Code.FRAME_MISMATCH),
    "video_zeros": (Code.DECODE_FAILED, Code.FRAME_MISMATCH),
    "video_hole": (Code.FRAME_MISMATCH,),
    "video_uneven": (Code.VFR,),
    "trajectory_absent": (Code.NO_TRAJECTORY,),
    "trajectory_missing": (Code.NO_TRAJECTORY,),
    "trajectory_truncated": (Code.TRAJ_TRUNCATED,),
    "trajectory_gap": (Code.TRAJ_GAP,),
    "trajectory_low_quality": (Code.TRAJ_LOW_QUALITY,),
    "trajectory_two_graphs": (Code.TRAJ_FRAME_CHANGE,),
    "trajectory_zero_quaternion": (Code.TRAJ_QUATERNION,),
    "trajectory_nan": (Code.TRAJ_NOT_FINITE,),
    "trajectory_no_column": (Code.TRAJ_MALFORMED,),
    "trajectory_page": (Code.TRAJ_MALFORMED,),
    "trajectory_unsorted": (Code.TRAJ_UNSORTED,),
    "calibration_missing": (Code.CALIBRATION_MISSING,),
    "calibration_other_camera": (Code.CALIBRATION_MISSING,),
    "timesync_missing": (Code.TIMESYNC_MISSING,),
    "timesync_other_camera": (Code.TIMESYNC_MISSING,),
    "timesync_mismatch": (Code.TIMESYNC_MISMATCH,),
    "take_dropped": (Code.TAKE_DROPPED,),
    "take_not_validated": (Code.TAKE_DROPPED,),
    "take_unknown": (Code.TAKE_UNKNOWN,),
    "take_malformed": (Code.RECORD_MALFORMED,),
    "name_parent": (Code.TAKE_NAME_INVALID,),
    "name_absolute": (Code.TAKE_NAME_INVALID,),
    "name_nul": (Code.TAKE_NAME_INVALID,),
    "name_long": (Code.TAKE_NAME_INVALID,),
    "no_split": (Code.NO_SPLIT,),
    "unlabelled": (Code.UNLABELLED,),
    "only_rejected": (Code.ANNOTATION_REJECTED,),
    "time_nan": (Code.TS_INVALID,),
    "time_negative": (Code.TS_INVALID,),
    "time_text": (Code.TS_INVALID,),
    "time_beyond": (Code.SEGMENT_OUTSIDE,),
    "time_at_end": (Code.SEGMENT_CLIPPED,),
    "times_equal": (Code.SEGMENT_EMPTY,),
    "text_empty": (Code.LABEL_EMPTY,),
    "description_malformed": (Code.RECORD_MALFORMED,),
}
VIDEO_FAULTS: Faults = {
    **{kind: codes for kind, codes in TAKE_FAULTS.items() if kind.startswith("video_")},
    "video_half": (Code.DECODE_FAILED, Code.FRAME_MISMATCH, Code.SEGMENT_OUTSIDE),
}
"""Kinds that damage a video to which no poses belong."""
TEST_SPLIT = "test_split"
"""A take of the split whose labels are kept back."""

NAMES = {"name_parent": "../evil", "name_absolute": "/evil", "name_nul": "evil\0take", "name_long": "evil" * 75}
"""Hostile take names."""
WITHOUT_FILES = (*NAMES, "take_malformed")
"""Faults of takes of which nothing but a record exists."""
HOLE_FRAMES = 15


@dataclass(frozen=True)
class TakeContents:
    """Content of the files of one take; None: the file does not exist."""

    video: bytes | None
    trajectory: bytes | None
    calibration: bytes | None
    later_videos: tuple[bytes, ...] = ()
    """Files that continue the first one, where the layout cuts a take in several."""


FileEdit = Callable[[TakeContents], TakeContents]


def break_frames(take: TakeTruth, frames: Iterable[F]) -> Iterator[F]:
    """Leave out the frames of the hole, where that is the fault."""
    low = take.n_frames // 2
    for k, frame in enumerate(frames):
        if take.fault != "video_hole" or not low <= k < low + HOLE_FRAMES:
            yield frame


def _without_index(video: bytes) -> bytes:
    """Return an mp4 without its index box (moov), as when a recorder stopped before it wrote one."""
    at = video.index(b"moov") - 4
    return video[:at] + video[at + int.from_bytes(video[at : at + 4]) :]


def with_zeros(video: bytes) -> bytes:
    """Return an mp4 with a block of zeros in its data."""
    low, high = int(0.45 * len(video)), int(0.6 * len(video))
    return video[:low] + bytes(high - low) + video[high:]


def edit_bytes(name: str, edit: Callable[[bytes], bytes]) -> FileEdit:
    """Return a damage that applies `edit` to the content of one file."""

    def damage(files: TakeContents) -> TakeContents:
        changes: Json = {name: edit(getattr(files, name) or b"")}
        return replace(files, **changes)

    return damage


def edit_rows(edit: Callable[[list[str]], list[str]]) -> FileEdit:
    """Return a damage that applies `edit` to the rows (without the header) of the trajectory file."""

    def edit_text(text: bytes) -> bytes:
        head, *rows = text.decode().splitlines()
        return ("\n".join([head, *edit(rows)]) + "\n").encode()

    return edit_bytes("trajectory", edit_text)


def stretch(rows: list[str], seconds: float) -> range:
    """Return the numbers of the rows in a stretch of `seconds` around the middle of the file."""
    first, last = (int(rows[i].split(",")[1]) for i in (0, -1))
    half = seconds * 1e6 / (last - first) * len(rows) / 2
    return range(int(len(rows) / 2 - half), int(len(rows) / 2 + half))


def overwrite(cells: dict[int, str]) -> FileEdit:
    """Return a damage that overwrites columns of the trajectory for 1.5 s."""

    def edit(rows: list[str]) -> list[str]:
        for k in stretch(rows, 1.5):
            rows[k] = ",".join((dict(enumerate(rows[k].split(","))) | cells).values())
        return rows

    return edit_rows(edit)


OTHER_MAP = "00000000-0000-5000-a000-00000000beef"
FILE_DAMAGE: dict[str, FileEdit] = {
    "video_missing": lambda f: replace(f, video=None),
    "video_text": lambda f: replace(f, video=b"start,end,label\n0.0,1.0,cuts\n" * 40),
    "video_no_index": edit_bytes("video", _without_index),
    "video_half": edit_bytes("video", lambda video: video[: len(video) // 2]),
    "video_zeros": edit_bytes("video", with_zeros),
    "trajectory_absent": lambda f: replace(f, trajectory=None, calibration=None),
    "trajectory_missing": lambda f: replace(f, trajectory=None),
    "trajectory_truncated": edit_bytes("trajectory", lambda text: text[: int(0.55 * len(text))]),
    "trajectory_gap": edit_rows(lambda rows: [rows[k] for k in range(len(rows)) if k not in stretch(rows, 0.4)]),
    "trajectory_low_quality": overwrite({19: "0.1"}),
    "trajectory_two_graphs": edit_rows(
        lambda rows: rows[: len(rows) // 2] + [OTHER_MAP + row[row.index(",") :] for row in rows[len(rows) // 2 :]]
    ),
    "trajectory_zero_quaternion": overwrite(dict.fromkeys(range(6, 10), "0.000000000")),
    "trajectory_nan": overwrite(dict.fromkeys(range(3, 6), "nan")),
    "trajectory_no_column": edit_bytes("trajectory", lambda text: text.replace(b"qw_world_device", b"qw", 1)),
    "trajectory_page": lambda f: replace(f, trajectory=b"<html><body>403 Forbidden</body></html>\n"),
    "trajectory_unsorted": edit_rows(lambda rows: rows[len(rows) // 2 :] + rows[: len(rows) // 2]),
    "calibration_missing": lambda f: replace(f, calibration=None),
    "calibration_other_camera": edit_bytes(
        "calibration", lambda text: text.replace(b"camera-rgb", b"camera-slam-right")
    ),
}


def break_record(take: TakeTruth, record: Json) -> Json | None:
    """Return the takes.json record with the take's fault applied; None: there is no record."""
    if take.fault == "take_unknown":
        return None
    if take.fault == "take_malformed":
        return {key: value for key, value in record.items() if key not in ("capture", "frame_aligned_videos")}
    if name := NAMES.get(take.fault or ""):
        return record | {"take_name": name, "root_dir": f"takes/{name}"}
    end = record["timesync_end_idx"]
    changes: dict[str, Json] = {
        "take_dropped": {"is_dropped": True},
        "take_not_validated": {"validated": False},
        "trajectory_absent": {"has_trimmed_trajectory": False, "trimmed_trajectory_relative_path": None},
        "timesync_mismatch": {"timesync_end_idx": end - 9},
        "video_hole": {"timesync_end_idx": end - HOLE_FRAMES},
    }
    return record | changes.get(take.fault or "", {})


def break_annotations(take: TakeTruth, annotations: list[Json], duration_s: float) -> list[Json]:
    """Return the annotations of a take with its fault applied.

    Faults of single descriptions are planted in every annotation that is long enough, so that the one that ingest
    chooses (the longest) has them.
    """
    if take.fault == "unlabelled":
        return []
    if take.fault == "only_rejected":
        return [a | {"rejected": True, "reject_reason": "descriptions do not match the video"} for a in annotations]
    damage = DESCRIPTION_DAMAGE.get(take.fault or "")
    if damage is None:
        return annotations
    ordered = [sorted(a["descriptions"], key=lambda d: float(d["timestamp"])) for a in annotations]
    return [
        a | {"descriptions": damage(descriptions, duration_s)} if len(descriptions) > 2 else a
        for a, descriptions in zip(annotations, ordered, strict=True)
    ]


def replaced(descriptions: list[Json], which: int, changes: Json) -> list[Json]:
    """Return the descriptions with number `which` changed, plainly visible, sure and of the wearer."""
    plain = {"ego_visible": True, "unsure": False, "subject": "C"}
    target = {k: v for k, v in descriptions[which].items() if k != "narration_subject"} | plain | changes
    return [*descriptions[: which % len(descriptions)], target, *descriptions[which % len(descriptions) + 1 :]]


OTHER_TEXT: Json = {"text": "C touches the table."}
DESCRIPTION_DAMAGE: dict[str, Callable[[list[Json], float], list[Json]]] = {
    "time_nan": lambda listed, _: replaced(listed, 1, {"timestamp": float("nan")}),
    "time_negative": lambda listed, _: replaced(listed, 0, {"timestamp": -3.5}),
    "time_text": lambda listed, _: replaced(listed, 1, {"timestamp": "12 seconds"}),
    "time_beyond": lambda listed, end_s: replaced(listed, -1, {"timestamp": round(end_s + 6.0, 5)}),
    "time_at_end": lambda listed, end_s: replaced(listed, -1, {"timestamp": round(end_s - 0.25, 5)}),
    "times_equal": lambda listed, _: [*(replaced(listed, 0, c)[0] for c in ({}, OTHER_TEXT)), *listed[1:]],
    "text_empty": lambda listed, _: replaced(listed, 1, {"text": "C ."}),
    "description_malformed": lambda listed, _: ["C waits.", {"timestamp": 1.0}, *listed],  # type: ignore[list-item]
}
