"""Ego-Exo4D metadata: takes.json and splits.json -> the paths of each take's files.

Source: docs.ego-exo4d-data.org, pages Metadata and Takes. Folders are named by take name, annotations by take
uid, and takes.json joins them. The head camera is the one with `is_ego` whose id begins with `aria`.
"""

from pathlib import PurePosixPath
from typing import NamedTuple

from schemas.annotation import SIMULATED
from schemas.config import IngestConfig
from schemas.features import HEAD_VIDEO_FPS
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import Fault, Released, TakeFiles
from trajpilot_core.corpora.formats.folders import read_document
from trajpilot_core.corpora.formats.strict import (
    as_bool,
    as_id,
    as_integer,
    as_list,
    as_object,
    as_seconds,
    as_text,
    parse,
    shown,
)
from trajpilot_core.corpora.records.candidates import claimed_twice
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.store.corpus_files import SAFE_NAME, Corpus, safe_path

CORPUS = "egoexo4d"
TAKES, SPLITS = "takes.json", "annotations/splits.json"
TRAJECTORY = "trajectory/closed_loop_trajectory.csv"
CALIBRATION = "trajectory/online_calibration.jsonl"
ADVICE = "fetch it with the parts `metadata` and `annotations` of one release"


class Takes(NamedTuple):
    """All records of takes.json, by take uid."""

    usable: dict[str, TakeFiles]
    faults: dict[str, Fault]
    """Uids with an unusable record, or of dropped takes."""
    rejects: list[Reject]
    """Records without a uid."""


def take_id(uid: str) -> str:
    """Return the take's id in our tables; a uid that cannot be stored is shortened and escaped."""
    return f"{CORPUS}:{shown(uid)}"


def read_takes(corpus: Corpus, config: IngestConfig) -> Takes:
    """Read takes.json; a bad record costs its take only.

    Raises InputError: takes.json is missing, no JSON, or no list.
    """
    records = parse(read_document(corpus, TAKES, ADVICE), TAKES)
    if not isinstance(records, list) or not records:
        raise InputError(f"{TAKES} contains {type(records).__name__} without takes, expected a list of takes; {ADVICE}")
    takes = Takes({}, {}, [])
    for index, record in enumerate(records):
        fields = as_object(record)
        uid = as_id(fields.get("take_uid"))
        if uid is None:
            fault = Fault(RejectCode.RECORD_MALFORMED, f"record without take_uid: {shown(record)}")
            takes.rejects.append(fault.reject("", 0, TAKES, index))
        elif uid in takes.usable or uid in takes.faults:
            takes.usable.pop(uid, None)
            takes.faults[uid] = Fault(RejectCode.RECORD_MALFORMED, "takes.json contains the take_uid more than once")
        else:
            try:
                takes.usable[uid] = _take_files(uid, fields, config)
            except TakeFault as unusable:
                takes.faults[uid] = Fault(unusable.code, unusable.detail)
    shared = claimed_twice((take.video, uid, "train") for uid, take in takes.usable.items())
    for uid in shared:
        del takes.usable[uid]
    takes.faults.update(shared)
    return takes


def read_splits(corpus: Corpus) -> dict[str, str | None]:
    """Return take uid -> released split; None where it is no text.

    Raises InputError: splits.json is missing, no JSON, or lacks `take_uid_to_split`.
    """
    mapping = as_object(parse(read_document(corpus, SPLITS, ADVICE), SPLITS)).get("take_uid_to_split")
    if not isinstance(mapping, dict) or not mapping:
        raise InputError(f"{SPLITS} lacks the object take_uid_to_split, or it is empty; {ADVICE}")
    return {uid: as_text(split) for uid, split in sorted(mapping.items())}


def used_split(released: str | None, config: IngestConfig) -> Released | None:
    """Return the use of a released split; the published test labels are `val` (config.test_split)."""
    return "train" if released == "train" else "test" if released == config.test_split else None


def _take_files(uid: str, take: dict[str, object], config: IngestConfig) -> TakeFiles:
    """Return where the files of a take are. Raises TakeFault: its record cannot be used."""
    name = as_text(take.get("take_name"))
    if name is None:
        raise TakeFault(RejectCode.RECORD_MALFORMED, "the take has no take_name")
    folder = take.get("root_dir") or f"takes/{name}"
    for what, value, is_safe in (
        ("take_uid", uid, SAFE_NAME.fullmatch(uid)),
        ("take_name", name, SAFE_NAME.fullmatch(name)),
        ("root_dir", folder, safe_path(folder)),
    ):
        if not is_safe:
            allowed = "1 to 128 of A-Z a-z 0-9 _ . -, no dot in front, no '..'"
            raise TakeFault(RejectCode.TAKE_NAME_INVALID, f"{what} is {shown(value)!r}, allowed are {allowed}")
    if as_bool(take.get("is_dropped")):
        raise TakeFault(RejectCode.TAKE_DROPPED, "is_dropped is true")
    if not config.keep_unvalidated and as_bool(take.get("validated")) is not True:
        raise TakeFault(RejectCode.TAKE_DROPPED, f"validated is {shown(take.get('validated'))}")
    capture = as_object(take.get("capture"))
    participant = as_id(take.get("participant_uid"))
    camera, stream = _head_camera(take, capture)
    relative = safe_path(stream.get("relative_path"))
    if relative is None:
        path = shown(stream.get("relative_path"))
        raise TakeFault(RejectCode.TAKE_NAME_INVALID, f"the video's relative_path is {path!r}")
    video = PurePosixPath(str(folder), relative)
    video = video if config.video == "full" else video.parent / "downscaled" / "448" / video.name
    capture_name, capture_root = as_text(capture.get("capture_name")), safe_path(capture.get("root_dir"))
    if capture_root is None and capture_name is not None and SAFE_NAME.fullmatch(capture_name):
        capture_root = f"captures/{capture_name}"
    capture_name = capture_name or (capture_root.rsplit("/", 1)[-1] if capture_root else None)
    stand_in = f"participant:{participant}" if participant else f"take:{uid}"
    has_trajectory = as_bool(take.get("has_trimmed_trajectory")) is not False  # else the disk decides
    return TakeFiles(
        uid=uid,
        corpus=SIMULATED if take.get("university_name") == SIMULATED else CORPUS,
        take_id=take_id(uid),
        name=name,
        scenario=as_text(take.get("task_name")) or as_text(take.get("parent_task_name")) or "unknown",
        participant=participant,
        capture=capture_name or as_id(take.get("capture_uid")) or stand_in,
        camera=f"{camera}_{as_text(stream.get('stream_id')) or '214-1'}",
        video=str(video),
        trajectory=f"{folder}/{TRAJECTORY}" if has_trajectory else None,
        timesync=f"{capture_root}/timesync.csv" if capture_root else None,
        calibration=f"{folder}/{CALIBRATION}",
        timesync_start=as_integer(take.get("timesync_start_idx")),
        timesync_end=as_integer(take.get("timesync_end_idx")),
        task_ids=tuple(n for n in map(as_integer, map(take.get, ("task_id", "parent_task_id"))) if n is not None),
        task_names=tuple(t for t in map(as_text, map(take.get, ("task_name", "parent_task_name"))) if t is not None),
        stated_s=as_seconds(take.get("duration_sec")),
        stated_fps=float(HEAD_VIDEO_FPS),
    )


def _head_camera(take: dict[str, object], capture: dict[str, object]) -> tuple[str, dict[str, object]]:
    """Return the id of the head camera and its RGB stream of `frame_aligned_videos`."""
    cameras = map(as_object, as_list(capture.get("cameras")))
    names = (as_text(camera.get("cam_id")) for camera in cameras if as_bool(camera.get("is_ego")))
    aria = sorted(name for name in names if name and name.lower().startswith("aria") and SAFE_NAME.fullmatch(name))
    if not aria:
        detail = "the capture has no camera with is_ego and an id that begins with aria"
        raise TakeFault(RejectCode.RECORD_MALFORMED, detail)
    videos = as_object(take.get("frame_aligned_videos"))
    for camera in aria:
        stream = as_object(as_object(videos.get(camera)).get("rgb"))
        if stream.get("relative_path") is not None:
            return camera, stream
    raise TakeFault(RejectCode.VIDEO_MISSING, f"takes.json names no RGB video of {', '.join(aria)}")
