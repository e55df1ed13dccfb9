"""Ego-Exo4D Keystep: the tree of a download with annotations/keystep_{train,val}.json.

Habits of the real files that are kept: `annotation_meta` for some takes and `annotation_metadata` for others, ids that
are numbers in fields and texts as keys, `step_id` unique within a scenario only, consecutive segments that almost
touch, segments whose step is no leaf of the taxonomy, and takes of the test split without labels.
"""

from schemas.rejects import RejectCode as Code
from trajpilot_core.simworld.faults import TAKE_FAULTS, TEST_SPLIT, Json
from trajpilot_core.simworld.layouts.annotate import step_description, step_name
from trajpilot_core.simworld.layouts.base import (
    SEGMENT_FAULTS,
    AnnotatedSpan,
    Layout,
    NamedFiles,
    TableSteps,
    annotated_in,
    as_json,
    break_spans,
    rank_of,
    spans_of,
)
from trajpilot_core.simworld.layouts.metadata import release_files, take_files
from trajpilot_core.simworld.world.truth import TakeTruth, World, random_uid, stream

DECIMALS = 5


def unique_ids(world: World) -> dict[str, int]:
    """Return step name -> `step_unique_id`, one for all scenarios."""
    names = sorted({step_name(label) for label in world.labels})
    return {name: 800 + 3 * i for i, name in enumerate(names)}


def label_ids(world: World) -> list[str]:
    """Return (V,) the label ids that the reader gives: the first label of each task has one for all."""
    ids = unique_ids(world)
    return [str(ids[step_name(label)]) for label in world.labels]


def step_ids(world: World, task: int) -> dict[int, int]:
    """Return label -> `step_id` of the labels of one task; node 0 is the task itself, then its stages, then steps.

    Scenarios number their steps independently, so one name has another id elsewhere.
    """
    of_task = [i for i, label in enumerate(world.labels) if label.task == task]
    order = stream(world.config, "keystep ids", task).permutation(len(of_task))
    first = 1 + world.config.positions + task
    return {of_task[int(k)]: first + n for n, k in enumerate(order)}


def taxonomy(world: World, task: int) -> Json:
    """Return the taxonomy of one scenario: node id as text -> node."""
    root = world.task_names[task]
    stages = [f"{root}, stage {position + 1}" for position in range(world.config.positions)]
    nodes: Json = {
        str(number): {"id": number, "is_leafnode": False, "name": name, "parent_id": above, "parent_name": above_name}
        for number, (name, above, above_name) in enumerate([(root, None, None), *((name, 0, root) for name in stages)])
    }
    last = world.config.positions - 1, world.config.alternatives - 1  # an inner node, annotated all the same
    unique = unique_ids(world)
    for label, step_id in sorted(step_ids(world, task).items(), key=lambda pair: pair[1]):
        truth = world.labels[label]
        nodes[str(step_id)] = {
            "id": step_id,
            "is_leafnode": (truth.position, truth.alternative) != last,
            "name": step_name(truth),
            "parent_id": truth.position + 1,
            "parent_name": stages[truth.position],
            "unique_id": unique[step_name(truth)],
        }
    return nodes


def segment(world: World, take: TakeTruth, span: AnnotatedSpan) -> Json:
    """Return one annotated segment."""
    truth = world.labels[span.label]
    name = "" if span.is_nameless else step_name(truth)
    record = {
        "start_time": span.start,
        "end_time": span.end,
        "step_id": step_ids(world, take.task)[span.label],
        "step_unique_id": None if span.is_nameless else unique_ids(world)[name],
        "step_name": name,
        "step_description": step_description(truth),
        "is_essential": truth.alternative != 1,
    }
    return {"step_name": name} if span.is_malformed else record


def annotation(world: World, take: TakeTruth) -> Json:
    """Return the annotation of one take."""
    rng = stream(world.config, "keystep", take.index)
    # A segment starts at the end of the one before, rounded.
    touching = [AnnotatedSpan(s.label, round(float(s.start), 3), s.end) for s in spans_of(take, DECIMALS)]
    spans = break_spans(world, take, touching)
    meta = {"annotation_uid": random_uid(rng), "annotator_id": int(rng.integers(100, 999))}
    return {
        "take_uid": take.uid,
        "take_name": take.name,
        "scenario": world.task_names[take.task],
        "annotation_meta" if rank_of(world, take) % 2 == 0 else "annotation_metadata": meta,
        "segments": [segment(world, take, span) for span in spans],
    }


def rest(world: World) -> NamedFiles:
    """Yield captures, metadata, atomic descriptions and keysteps, each with the whole taxonomy and vocabulary."""
    yield from release_files(world, benchmark="keystep")
    for split in ("train", "val"):
        takes = [t for t in world.takes if annotated_in(t, split) and t.fault != "unlabelled"]
        document = {
            "annotations": {t.uid: annotation(world, t) for t in sorted(takes, key=lambda t: t.uid)},
            "taxonomy": {name: taxonomy(world, task) for task, name in enumerate(world.task_names)},
            "vocabulary": {str(number): name for name, number in unique_ids(world).items()},
        }
        yield f"annotations/keystep_{split}.json", as_json(document)


OF_DESCRIPTIONS = {*SEGMENT_FAULTS, "only_rejected", "description_malformed"}
"""Kinds that only point descriptions can have, or that mean something else for segments."""
LAYOUT = Layout(
    take_files,
    rest,
    {
        **{kind: codes for kind, codes in TAKE_FAULTS.items() if kind not in OF_DESCRIPTIONS},
        **SEGMENT_FAULTS,
        TEST_SPLIT: (Code.UNLABELLED, Code.NO_SPLIT),
    },
    TableSteps(label_ids),
    tiny={},
    has_poses=True,
)
