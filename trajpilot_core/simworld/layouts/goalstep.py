"""Ego4D GoalStep: full-scale videos by uid, ego4d.json, annotations of goals, steps and substeps, and video groups.

Habits of the real files that are kept: entries `grp-...` over several files laid end to end, with a step across each
cut; substeps, some of which stick out of their step; one step of each file without three of its fields; entries
whose steps are out of order; empty summaries and addresses. There are no trajectories.
"""

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from schemas.rejects import RejectCode as Code
from trajpilot_core.corpora.goalstep.reader import take_id
from trajpilot_core.corpora.records.annotations import normalise
from trajpilot_core.simworld.faults import Json, TakeContents
from trajpilot_core.simworld.layouts.annotate import is_shared, step_description, step_name, thing_of
from trajpilot_core.simworld.layouts.base import (
    VIDEO_ONLY,
    AnnotatedSpan,
    Layout,
    NamedFiles,
    PlacedTake,
    TableSteps,
    annotated_in,
    as_json,
    break_spans,
    hostile,
    rank_of,
    shuffled,
    spans_of,
)
from trajpilot_core.simworld.world.truth import LabelTruth, TakeTruth, World, random_uid, stream

VIDEOS, ANNOTATIONS = "v2/full_scale", "v2/annotations"
OFFSET_S = 0.0210286458333333
"""Where goals start: the canonical offset of the release."""
DECIMALS = 5
CUT = 0.35
"""Where in a step a file ends, as a share of the step: its midpoint is in the next file."""
GROUP_FAULTS = ("group_part_missing", "group_unknown")
RELEVANCE = (("essential", 0.72), ("optional", 0.12), ("irrelevant", 0.13), ("unsure", 0.03))


def n_files(world: World, take: TakeTruth) -> int:
    """Return the number of files of a take: two or three for every third of a split."""
    if take.fault is not None:
        return 2 if take.fault in GROUP_FAULTS else 1
    rank = rank_of(world, take)
    return 1 if rank % 3 else 2 + (rank // 3) % 2


def parts(world: World, take: TakeTruth) -> tuple[int, ...]:
    """Return the frames of each file of a take; every cut is inside a step."""
    n, steps = n_files(world, take), take.segments
    cut_steps = [steps[len(steps) * k // n] for k in range(1, n)]
    cuts = [round((s.start_s + CUT * (s.end_s - s.start_s)) * world.config.fps) for s in cut_steps]
    edges = [0, *cuts, take.n_frames]
    return tuple(b - a for a, b in pairwise(edges))


def video_uids(world: World, take: TakeTruth) -> tuple[str, ...]:
    """Return the uids of a take's files, in order of time."""
    rng = stream(world.config, "goalstep files", take.index)
    return take.uid, *(random_uid(rng) for _ in range(n_files(world, take) - 1))


def entry_uid(world: World, take: TakeTruth) -> str:
    """Return the uid of a take's entry: that of its only file, or of its group."""
    first = hostile(take, take.uid)
    return f"grp-{first}" if n_files(world, take) > 1 else first


def take_files(world: World, take: TakeTruth, content: TakeContents) -> NamedFiles:
    """Yield the video files of a take."""
    for k, (uid, data) in enumerate(zip(video_uids(world, take), (content.video, *content.later_videos), strict=True)):
        is_lost = take.fault == "take_unknown" or (k > 0 and take.fault == "group_part_missing")
        if data is not None and not is_lost:
            yield f"{VIDEOS}/{uid}.mp4", data


def video_record(world: World, take: TakeTruth, uid: str, n_frames: int) -> Json:
    """Return the record of one file in ego4d.json."""
    duration, size = round(n_frames / world.config.fps, 6), world.config.size_px
    return {
        "video_uid": uid,
        "duration_sec": duration,
        "scenarios": [world.task_names[take.task]],
        "video_metadata": {
            "fps": float(world.config.fps),
            "num_frames": n_frames,
            "video_codec": "h264",
            "audio_codec": None,
            "display_resolution_width": size,
            "display_resolution_height": size,
            "mp4_duration_sec": duration,
            "video_start_sec": 0.0,
        },
        "split_fho": None,
        "video_source": "simulated",
        "device": "Simulated",
        "fb_participant_id": world.participants[world.captures[take.capture].operator],
        "is_stereo": False,
        "has_imu": False,
        "has_gaze": False,
    }


def category(label: LabelTruth) -> str:
    """Return the category of a step: what it is about, and its name."""
    about = "Prepare" if is_shared(label) else f"Work on the {thing_of(label)}"
    return f"{about}: {step_name(label)}"


def placed_takes(world: World) -> dict[str, PlacedTake]:
    """Return the files of all takes by the ids that the reader gives them."""
    placed: dict[str, PlacedTake] = {}
    for take in world.takes:
        entry, uids = entry_uid(world, take), list(video_uids(world, take))
        if len(uids) == 1:
            uids = [entry]
        lengths = [round(n / world.config.fps, 6) for n in parts(world, take)]
        for uid, start_s in zip(uids, accumulate(lengths[:-1], initial=0.0), strict=True):
            placed[take_id(entry, uid)] = PlacedTake(take, start_s)
    return placed


def step(world: World, rng: np.random.Generator, span: AnnotatedSpan, is_repeated: bool) -> Json:
    """Return one annotated step, half of the time with its halves as substeps; some of these end after their step."""
    truth = world.labels[span.label]
    thing, relevance = thing_of(truth), [name for name, _ in RELEVANCE]
    times = {"start_time": span.start, "end_time": span.end}
    name = "" if span.is_nameless else category(truth)
    record: Json = {**times, "step_category": name, "step_description": step_description(truth)}
    record |= {"is_continued": is_repeated, "is_procedural": bool(rng.random() < 0.7)}
    record["is_relevant"] = relevance[int(rng.choice(len(relevance), p=[share for _, share in RELEVANCE]))]
    record["summary"] = [f"handles the {thing}"] if rng.random() < 0.35 else []
    record["segments"] = []
    if rng.random() < 0.5 and isinstance(span.start, float) and isinstance(span.end, float):
        middle, late = round((span.start + span.end) / 2, DECIMALS), 0.6 if rng.random() < 0.1 else 0.0
        last = round(span.end + late, DECIMALS)
        halves = (span.start, middle, "Take", "Takes"), (middle, last, "Put down", "Puts down")
        rest = {"is_continued": False, "is_procedural": False, "is_relevant": "essential", "summary": []}
        record["segments"] = [
            {
                "start_time": start,
                "end_time": end,
                "step_category": f"Work on the {thing}: {verb} the {thing}",
                "step_description": f"{says} the {thing}",
                **rest,
            }
            for start, end, verb, says in halves
        ]
    return {"step_category": name} if span.is_malformed else record


def entry(world: World, take: TakeTruth) -> Json:
    """Return the annotation of one take."""
    rng = stream(world.config, "goalstep", take.index)
    spans = break_spans(world, take, spans_of(take, DECIMALS))
    labels = [span.label for span in spans]
    steps: list[Any] = [step(world, rng, span, span.label in labels[:k]) for k, span in enumerate(spans)]
    if take.fault is not None:
        steps = [step | {"is_relevant": "essential"} if "is_relevant" in step else step for step in steps]
    if rank_of(world, take) == 0:
        steps[1] = {k: v for k, v in steps[1].items() if k not in ("is_continued", "is_procedural", "is_relevant")}
    if rank_of(world, take) % 4 == 1:
        steps[0], steps[-1] = steps[-1], steps[0]
    goal = world.task_names[take.task]
    record: Json = {
        "video_uid": entry_uid(world, take),
        "start_time": OFFSET_S,
        "end_time": OFFSET_S + world.take_duration_s(take),
        "goal_category": f"SIMULATED:{goal.upper().replace(' ', '_')}",
        "goal_description": goal,
        "goal_wikihow_url": "" if rng.random() < 0.4 else "https://example.org/simulated",
        "summary": [],
        "is_procedural": True,
        "segments": [] if take.fault == "unlabelled" else steps,
    }
    return {k: v for k, v in record.items() if k != "segments"} if take.fault == "take_malformed" else record


def rest(world: World) -> NamedFiles:
    """Yield metadata of every file that a download would know, also of a lost one; groups; annotations."""
    videos, groups = [], ["university\tvideo_group"]
    for take in shuffled(world):
        uids = video_uids(world, take)
        if take.fault not in ("take_unknown", "name_parent", "name_absolute"):
            videos += [video_record(world, take, *part) for part in zip(uids, parts(world, take), strict=True)]
        if len(uids) > 1 and take.fault != "group_unknown":
            groups.append(f"simulated\t{list(uids)}")
    about = {"date": "simulated", "version": "v2_1", "description": "Simulated metadata"}
    yield "ego4d.json", as_json({**about, "videos": videos})
    yield f"{ANNOTATIONS}/goalstep_video_groups.tsv", ("\n".join(groups) + "\n").encode()
    for split in ("train", "val"):
        document = {
            "version": "1.0",
            "date": "simulated",
            "description": f"Simulated Ego4D Goal-Step ({split})",
            "split": split,
            "videos": [entry(world, take) for take in shuffled(world) if annotated_in(take, split)],
        }
        yield f"{ANNOTATIONS}/goalstep_{split}.json", as_json(document)


LAYOUT = Layout(
    take_files,
    rest,
    faults={
        **VIDEO_ONLY,
        "unlabelled": (Code.UNLABELLED,),
        "take_malformed": (Code.RECORD_MALFORMED,),
        "group_part_missing": (Code.VIDEO_MISSING,),
        "group_unknown": (Code.TAKE_UNKNOWN, Code.RECORD_MALFORMED),
    },
    steps=TableSteps(lambda world: [normalise(category(label)) for label in world.labels], placed_takes),
    # Longer takes: of ten steps, those not relevant and those that odometry loses leave no window of eight.
    tiny={"train_takes": 9, "test_takes": 5, "operators": 6, "segments": 14},
    parts=parts,
)
