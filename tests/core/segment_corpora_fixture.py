"""Small corpora on disk in the layouts of GoalStep, EgoPER and EPIC-KITCHENS-100, to be damaged by tests."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from egoexo_fixture import video_bytes, write, write_json

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.readers import READERS
from trajpilot_core.readers.corpus import open_corpus
from trajpilot_core.readers.epic_files import COLUMNS
from trajpilot_core.readers.reading import Candidate, Reading

DATA = Path(__file__).parents[3] / "shared" / "data"
GOALSTEP_DATA, EPIC_DATA = DATA / "goalstep", DATA / "epic100"
real_goalstep = pytest.mark.skipif(
    not GOALSTEP_DATA.exists(), reason=f"the released annotations are not at {GOALSTEP_DATA}"
)
real_epic = pytest.mark.skipif(not EPIC_DATA.exists(), reason=f"the released annotations are not at {EPIC_DATA}")
Json = dict[str, Any]


def settings(corpus: str, **changes: Any) -> IngestConfig:
    """Return the defaults of a corpus, with changes of its own record."""
    base = IngestConfig(corpus=corpus, dev_min=1)  # type: ignore[arg-type]
    return base.replace(**{corpus: getattr(base, corpus).replace(**changes)}) if changes else base


def read(root: Path, config: IngestConfig) -> Reading:
    """Read a corpus; what comes in is what comes out and what is rejected."""
    reading = READERS[config.corpus].read(open_corpus(str(root)), config)
    kept, lost = sum(len(c.points) for c in reading.candidates), sum(row.n_units for row in reading.rejects)
    assert reading.n_in == kept + lost
    assert all(c.take.take_id in reading.released for c in reading.candidates)
    return reading


def codes(reading: Reading) -> Counter[RejectCode]:
    """Return how many rows each code has."""
    return Counter(row.code for row in reading.rejects)


def of(reading: Reading, code: RejectCode) -> list[Reject]:
    """Return the rows of a code."""
    return [row for row in reading.rejects if row.code == code]


def counted(reading: Reading) -> dict[str, int]:
    """Return what the reader counted."""
    return {row.what: row.ours for row in reading.counts}


def take(reading: Reading, take_id: str) -> Candidate:
    """Return a candidate by id."""
    return next(c for c in reading.candidates if c.take.take_id == take_id)


# GoalStep


def step(start_s: object, end_s: object, category: object = "Cook: Stir", **changes: object) -> Json:
    """Return a step with the fields of the release."""
    return {
        "start_time": start_s, "end_time": end_s, "step_category": category, "step_description": "Stirs it.",
        "is_continued": False, "is_procedural": False, "is_relevant": "essential", "summary": [], "segments": [],
        **changes,
    }  # fmt: skip


def entry(uid: object, steps: object, goal: str = "COOKING:MAKE_TEA") -> Json:
    """Return an entry with the fields of the release."""
    return {
        "video_uid": uid, "start_time": 0.02, "end_time": 60.0, "goal_category": goal, "goal_description": "Make tea",
        "goal_wikihow_url": "", "summary": [], "is_procedural": True, "segments": steps,
    }  # fmt: skip


def four(first: str = "Cook: Stir") -> list[Json]:
    """Return four steps, one after another."""
    names = (first, "Cook: Pour", "Cook: Boil", "Cook: Serve")
    return [step(2.0 * i, 2.0 * i + 1.8, name) for i, name in enumerate(names)]


def goalstep(root: Path, train: list[Json], val: list[Json], groups: dict[str, float] | None = None) -> Path:
    """Write a GoalStep download.

    Args:
        root: where.
        train: entries of goalstep_train.json.
        val: entries of goalstep_val.json.
        groups: the videos of one group in order, with their lengths in seconds.
    """
    folder = root / "v2" / "annotations"
    for name, entries in (("train", train), ("val", val)):
        write_json(folder / f"goalstep_{name}.json", {"version": "1.0", "split": name, "videos": entries})
    of_group = groups or {}
    table = f"university\tvideo_group\nmade\t{list(of_group)}\n" if of_group else "university\tvideo_group\n"
    write(folder / "goalstep_video_groups.tsv", table.encode())
    single = [e["video_uid"] for e in (*train, *val) if isinstance(e, dict) and isinstance(e.get("video_uid"), str)]
    lengths = {uid: 12.0 for uid in single if not uid.startswith("grp-")} | of_group
    videos = [{"video_uid": u, "duration_sec": s, "fb_participant_id": 7} for u, s in lengths.items()]
    write_json(root / "ego4d.json", {"videos": videos})
    for uid, length_s in lengths.items():
        if "/" not in uid:
            write(root / "v2" / "full_scale" / f"{uid}.mp4", video_bytes(length_s))
    return root


# EgoPER


def egoper_video(video_id: str, actions: list[object], kinds: list[object] | None = None, **changes: object) -> Json:
    """Return a video whose segments of two seconds touch."""
    labels = {
        "action": actions, "action_type": kinds or [0] * len(actions),
        "time_stamp": [[2.0 * i, 2.0 * i + 2.0] for i in range(len(actions))],
        "error_description": [""] * len(actions), **changes,
    }  # fmt: skip
    return {"video_id": video_id, "labels": labels}


def egoper_task(videos: list[Json], *steps: str, **changes: object) -> Json:
    """Return a task whose steps have the indices 1, 2 and so on."""
    kinds = ["Normal", "Error_Modification", "Error_Slip", "Error_Correction", "Error_Addition"]
    return {
        "segments": videos, "action2idx": {name: i for i, name in enumerate(("BG", *steps))},
        "actiontype2idx": {name: i for i, name in enumerate(kinds)}, **changes,
    }  # fmt: skip


def egoper(root: Path, tasks: Json, splits: dict[str, list[str]]) -> Path:
    """Write an EgoPER download.

    Args:
        root: where.
        tasks: task -> its annotation.
        splits: path of a list -> video ids.
    """
    write_json(root / "annotation.json", tasks)
    for path, ids in splits.items():
        write(root / path, "".join(f"{name}\n" for name in ids).encode())
    for task, annotation in tasks.items():
        for video in annotation["segments"]:
            write(root / task / "trim_videos" / f"{video['video_id']}.mp4", video_bytes())
    return root


# EPIC-KITCHENS-100

VERBS, NOUNS = ("take", "put-down", "wash"), ("plate", "board:chopping", "cup")


def action(uid: str, start: str, stop: str, verb: object = 0, noun: object = 0, **changes: object) -> dict[str, object]:
    """Return a row of the action tables; its video is the part of the id before the last underscore."""
    video = uid.rsplit("_", 1)[0]
    return {
        "narration_id": uid, "participant_id": video.split("_")[0], "video_id": video,
        "narration_timestamp": "00:00:01.000", "start_timestamp": start, "stop_timestamp": stop, "start_frame": 1,
        "stop_frame": 2, "narration": "take plate", "verb": "take", "verb_class": verb, "noun": "plate",
        "noun_class": noun, "all_nouns": "['plate']", "all_noun_classes": "[0]", **changes,
    }  # fmt: skip


def table(rows: list[dict[str, object]], columns: tuple[str, ...] = COLUMNS) -> bytes:
    """Return rows as CSV."""
    lines = [
        ",".join(columns),
        *(",".join(json.dumps(str(row[name])).replace('\\"', '""') for name in columns) for row in rows),
    ]
    return ("\n".join(lines) + "\n").encode()


def epic(root: Path, train: list[dict[str, object]], val: list[dict[str, object]], suffix: str = ".MP4") -> Path:
    """Write an EPIC-KITCHENS-100 download."""
    write(root / "EPIC_100_train.csv", table(train))
    write(root / "EPIC_100_validation.csv", table(val))
    for kind, names in (("verb", VERBS), ("noun", NOUNS)):
        rows: list[dict[str, object]] = [{"id": i, "key": name, "category": "x"} for i, name in enumerate(names)]
        write(root / f"EPIC_100_{kind}_classes.csv", table(rows, ("id", "key", "category")))
        write(root / f"EPIC_100_tail_{kind}s.csv", f"{kind}\n2\n".encode())
    write(root / "EPIC_100_unseen_participant_ids_validation.csv", b"participant_id\nP03\n")
    for row in (*train, *val):
        video, participant = str(row["video_id"]), str(row["participant_id"])
        if "/" not in video + participant:
            write(root / participant / "videos" / f"{video}{suffix}", video_bytes())
    return root
