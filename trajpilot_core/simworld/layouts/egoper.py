"""EgoPER: annotation.json with one block per task, lists of videos per task and split, trimmed videos.

Habits of the real files that are kept: action indices per task (one step name has another index elsewhere), background
segments that tile the video, error types with descriptions in tested videos only, additions as an action of their own,
numbers that are texts for some videos, and task folders that are capitalised for some tasks. There are no trajectories.
"""

from dataclasses import replace

from schemas.rejects import RejectCode as Code
from trajpilot_core.corpora.egoper.reader import take_id
from trajpilot_core.corpora.records.annotations import normalise
from trajpilot_core.simworld.faults import Json, TakeContents
from trajpilot_core.simworld.layouts.annotate import SHARED_NAME, step_name
from trajpilot_core.simworld.layouts.base import (
    VIDEO_ONLY,
    AnnotatedSpan,
    Layout,
    NamedFiles,
    PlacedTake,
    TableSteps,
    Time,
    as_json,
    break_spans,
    hostile,
    rank_of,
    shuffled,
    spans_of,
)
from trajpilot_core.simworld.world.truth import TakeTruth, World, stream

TASKS = ("tea", "coffee", "oatmeal", "pinwheels", "quesadilla")
"""The corpus' own tasks; a world with more tasks goes on with its own names."""
TYPES = {"Normal": 0, "Error_Modification": 1, "Error_Slip": 2, "Error_Correction": 3, "Error_Addition": 4}
BACKGROUND, ADDITION = "BG", "Error_Addition"
DESCRIPTIONS = {
    1: "does the step in another way",
    2: "drops the object",
    3: "does the step again to correct it",
    4: "does something that does not belong there",
}
DECIMALS = 3
GAP_SHARE, GAP = 0.3, 0.2
"""How often background follows a step, and which share of the step it takes."""


def task_key(world: World, task: int) -> str:
    """Return the key of a task in annotation.json, lower case."""
    return TASKS[task] if task < len(TASKS) else world.task_names[task].lower().replace(" ", "_")


def task_folder(world: World, task: int) -> str:
    """Return the folder of a task: capitalised for every second one."""
    key = task_key(world, task)
    return key.capitalize() if task % 2 else key


def action_indices(world: World, task: int) -> dict[str, int]:
    """Return action name -> index of one task: background 0, steps in an order of the task's own, additions last."""
    names = sorted(step_name(label) for label in world.labels if label.task == task and step_name(label) != SHARED_NAME)
    order = [names[int(k)] for k in stream(world.config, "egoper actions", task).permutation(len(names))]
    at = task % (len(order) + 1)
    steps = [*order[:at], SHARED_NAME, *order[at:]]
    return {name: i for i, name in enumerate([BACKGROUND, *steps, ADDITION])}


def has_errors(world: World, take: TakeTruth) -> bool:
    """Whether mistakes were made: in every second unbroken tested take, never in training."""
    return take.split == "val" and rank_of(world, take) % 2 == 1


def video_id(world: World, take: TakeTruth) -> str:
    """Return <task>_u<user>_a<attempt>_<normal|error>_<number>."""
    kind = "error" if has_errors(world, take) else "normal"
    user = world.captures[take.capture].operator + 1
    name = f"{task_key(world, take.task)}_u{user}_a{1 + take.index % 2}_{kind}_{take.index + 1:03d}"
    return hostile(take, name)


def split_file(world: World, take: TakeTruth) -> str:
    """Return the list that names a take: tested takes are shared between validation and test."""
    return "training" if take.split == "train" else ("validation", "test")[rank_of(world, take) // 2 % 2]


def tiled(world: World, take: TakeTruth) -> list[AnnotatedSpan]:
    """Return steps and background so that they tile the video.

    Where there are mistakes, three steps are performed wrongly, and one stretch of background is an addition.
    """
    rng = stream(world.config, "egoper", take.index)
    duration = round(world.take_duration_s(take), DECIMALS)
    steps = spans_of(take, DECIMALS)
    spans = [AnnotatedSpan(0, 0.0, steps[0].start, is_background=True)]
    for i, step in enumerate(steps):
        start, end = float(step.start), float(step.end)
        gap = rng.random() < GAP_SHARE
        cut = round(end - GAP * (end - start), DECIMALS) if gap and i < len(steps) - 1 else end
        spans.append(replace(step, end=cut))
        if cut < end:
            spans.append(AnnotatedSpan(0, cut, end, is_background=True))
    spans.append(AnnotatedSpan(0, steps[-1].end, duration, is_background=True))
    if not has_errors(world, take):
        return spans
    performed = [i for i, span in enumerate(spans) if not span.is_background]
    kinds = {performed[len(performed) * k // 4]: 1 + (rank_of(world, take) // 2 + k) % 3 for k in range(1, 4)}
    kinds[next(i for i, span in enumerate(spans) if i > 0 and span.is_background)] = TYPES[ADDITION]
    return [replace(span, error_type=kinds.get(i, 0)) for i, span in enumerate(spans)]


def segment(world: World, take: TakeTruth) -> Json:
    """Return the annotation of one video: parallel lists."""
    spans = [] if take.fault == "unlabelled" else break_spans(world, take, tiled(world, take))
    index = action_indices(world, take.task)
    names = [BACKGROUND if s.is_background else step_name(world.labels[s.label]) for s in spans]
    names = [ADDITION if s.error_type == TYPES[ADDITION] else name for s, name in zip(spans, names, strict=True)]
    actions: list[int | str] = [99 if s.is_nameless else index[n] for s, n in zip(spans, names, strict=True)]
    types: list[int | str] = [s.error_type for s in spans]
    times: list[list[Time]] = [[s.start] if s.is_malformed else [s.start, s.end] for s in spans]
    if take.index % 3 == 1:
        actions, types = [str(a) for a in actions], [str(t) for t in types]
    labels = {
        "action": actions[:-1] if take.fault == "take_malformed" else actions,
        "action_type": types,
        "time_stamp": times,
        "error_description": [DESCRIPTIONS.get(s.error_type, "") for s in spans],
    }
    return {"video_id": video_id(world, take), "labels": labels}


def take_files(world: World, take: TakeTruth, content: TakeContents) -> NamedFiles:
    """Yield the trimmed video of a take."""
    if content.video is not None and take.fault != "take_unknown":
        yield f"{task_folder(world, take.task)}/trim_videos/{video_id(world, take)}.mp4", content.video


def rest(world: World) -> NamedFiles:
    """Yield annotations, and the lists of video ids of each task."""
    takes = shuffled(world)
    annotated = [take for take in takes if take.fault != "take_unknown"]
    document = {
        task_key(world, task): {
            "segments": [segment(world, take) for take in annotated if take.task == task],
            "action2idx": action_indices(world, task),
            "actiontype2idx": TYPES,
        }
        for task in range(world.config.tasks)
    }
    yield "annotation.json", as_json(document)
    for task in range(world.config.tasks):
        lists: dict[str, list[str]] = {name: [] for name in ("training", "validation", "test")}
        for take in (take for take in takes if take.task == task and take.fault != "no_split"):
            for name in (split_file(world, take), *(["validation"] if take.fault == "two_splits" else [])):
                lists[name].append(video_id(world, take))
        for name, ids in lists.items():
            yield f"{task_folder(world, task)}/{name}.txt", "".join(f"{video_id}\n" for video_id in ids).encode()


LAYOUT = Layout(
    take_files,
    rest,
    faults={
        **VIDEO_ONLY,
        "unlabelled": (Code.UNLABELLED,),
        "no_split": (Code.NO_SPLIT, Code.SPLIT_UNUSED),
        "take_malformed": (Code.RECORD_MALFORMED,),
    },
    steps=TableSteps(
        # the reader joins names over the tasks
        label_ids=lambda world: [normalise(step_name(label)) for label in world.labels],
        takes=lambda world: {take_id(video_id(world, take)): PlacedTake(take) for take in world.takes},
    ),
)
