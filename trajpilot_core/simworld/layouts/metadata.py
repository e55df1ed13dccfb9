"""The tree of an Ego-Exo4D download, which three layouts share: files of takes and captures, metadata, descriptions.

Source of the layouts: the Ego-Exo4D documentation (docs.ego-exo4d-data.org, metadata and annotations).
"""

from collections.abc import Callable
from typing import Any

from trajpilot_core.simworld import faults
from trajpilot_core.simworld.faults import Json, TakeContents
from trajpilot_core.simworld.layouts.annotate import Captions, annotations_of, label_caption, paraphrase_csv
from trajpilot_core.simworld.layouts.aria import timesync_csv
from trajpilot_core.simworld.layouts.base import NamedFiles, as_json, shuffled
from trajpilot_core.simworld.world.truth import TakeTruth, World, random_uid, stream

PARAPHRASE_TABLE = "annotations/paraphrases.csv"
"""Path of the paraphrase groups, relative to the corpus root."""
DESCRIPTIONS = "annotations/atomic_descriptions_val.json"


def take_record(world: World, take: TakeTruth) -> Json:
    """Return the unbroken takes.json record of one take."""
    capture = world.captures[take.capture]
    camera, video = capture.camera, f"frame_aligned_videos/{capture.camera}_214-1.mp4"
    return {
        "root_dir": f"takes/{take.name}",
        "take_name": take.name,
        "take_uid": take.uid,
        "participant_uid": world.participants[capture.operator],
        "is_dropped": False,
        "objects": [],
        "best_exo": None,
        "task_id": 1001 + take.task,
        "task_name": world.task_names[take.task],
        "task_start_sec": None,
        "task_end_sec": None,
        "parent_task_id": 1000,
        "parent_task_name": "Simulated",
        "take_idx": int(take.name.rsplit("_", 1)[1]),
        "duration_sec": round(world.take_duration_s(take), 6),
        "is_narrated": True,
        "physical_setting_uid": 1 + take.capture,
        "timesync_start_idx": take.first_row - (1 if capture.exclusive else 0),
        "timesync_end_idx": take.first_row + take.n_frames,
        "validated": True,
        "university_name": "simulated",
        "capture_uid": capture.uid,
        "capture": {
            "root_dir": f"captures/{capture.name}",
            "capture_name": capture.name,
            "capture_uid": capture.uid,
            "has_trajectory": True,
            "cameras": [
                {"cam_id": camera, "is_ego": True, "device_type": "aria"},
                {"cam_id": "cam01", "is_ego": False, "device_type": "gopro"},
            ],
        },
        "has_trimmed_trajectory": True,
        "has_trimmed_vrs": True,
        "has_trimmed_eye_gaze": False,
        "trimmed_trajectory_relative_path": "trajectory",
        "frame_aligned_videos": {
            camera: {"rgb": {"cam_id": camera, "stream_id": "214-1", "relative_path": video, "clip_uid": None}},
            "cam01": {"0": {"cam_id": "cam01", "stream_id": "0", "relative_path": None, "clip_uid": None}},
            "best_exo": {"0": {"relative_path": None}},
        },
    }


def _atomic_json(world: World, split: str, captions: Captions) -> Json:
    by_take: dict[str, list[Json]] = {}
    for take in sorted((t for t in world.takes if t.split == split), key=lambda t: t.uid):
        given = annotations_of(world, take, captions)
        if annotations := faults.break_annotations(take, given, world.take_duration_s(take)):
            by_take[take.uid] = annotations
    return {"ds": "simulated", "take_cam_id_map": {}, "annotations": by_take}


def take_files(world: World, take: TakeTruth, content: TakeContents) -> NamedFiles:
    """Yield video, trajectory and calibration of a take."""
    root, camera = f"takes/{take.name}", world.captures[take.capture].camera
    for name, data in (
        (f"{root}/frame_aligned_videos/{camera}_214-1.mp4", content.video),
        (f"{root}/trajectory/closed_loop_trajectory.csv", content.trajectory),
        (f"{root}/trajectory/online_calibration.jsonl", content.calibration),
    ):
        if data is not None:
            yield name, data


def release_files(
    world: World,
    captions: Captions = label_caption,
    facts: Callable[[TakeTruth], Json] = lambda take: {},
    benchmark: str = "atomic_action_descriptions",
) -> NamedFiles:
    """Yield every file but those of the takes: captures, metadata, and descriptions of the steps.

    Args:
        facts: fields of takes.json that differ from those of the plain take.
        benchmark: purpose of the takes in splits.json.
    """
    fault_of = {take.capture: take.fault for take in world.takes}
    captures = []
    for number, capture in enumerate(world.captures):
        if fault_of[number] != "timesync_missing":
            camera = "cam09_0" if fault_of[number] == "timesync_other_camera" else f"{capture.camera}_214-1"
            text = timesync_csv(world, capture).replace(f"{capture.camera}_214-1", camera)
            yield f"captures/{capture.name}/timesync.csv", text.encode()
        captures.append(
            {
                "capture_uid": capture.uid,
                "capture_name": capture.name,
                "root_dir": f"captures/{capture.name}",
                "has_trajectory": True,
                "participant_uid": world.participants[capture.operator],
                "physical_setting_uid": 1 + number,
                "university_name": "simulated",
            }
        )
    records = (faults.break_record(take, take_record(world, take) | facts(take)) for take in shuffled(world))
    listed = sorted((t.uid, t.split) for t in world.takes if t.fault != "no_split")
    splits = {
        "take_uid_to_split": dict(listed),
        "split_to_take_uids": {s: [uid for uid, split in listed if split == s] for s in ("train", "val", "test")},
        "take_uid_to_benchmark": {uid: [benchmark] for uid, _ in listed},
    }
    persons = [{"participant_uid": uid, "university_name": "simulated"} for uid in sorted(world.participants)]
    documents: dict[str, Any] = {
        "takes.json": [record for record in records if record is not None],
        "captures.json": captures,
        "participants.json": persons,
        "annotations/splits.json": splits,
        "annotations/atomic_descriptions_train.json": _atomic_json(world, "train", captions),
        DESCRIPTIONS: _atomic_json(world, "val", captions),
    }
    yield from ((path, as_json(value)) for path, value in documents.items())
    if captions is label_caption:  # of texts of the labels, which the table groups
        yield PARAPHRASE_TABLE, paraphrase_csv(world).encode()
    if world.config.broken == "each":
        whole = as_json(documents[DESCRIPTIONS])
        yield f"{DESCRIPTIONS}.{random_uid(stream(world.config, 'leftover'))[:7]}", whole[: len(whole) // 3]
