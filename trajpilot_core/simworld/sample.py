"""Draw a whole world: pure and cheap; files are written from it (write.py)."""

from dataclasses import replace

import numpy as np

from schemas.world import WorldConfig
from trajpilot_core.simworld.faults import TEST_SPLIT, VIDEO_FAULTS
from trajpilot_core.simworld.layouts.base import layout_of
from trajpilot_core.simworld.world import procedure
from trajpilot_core.simworld.world.procedure import TASKS, draw_labels
from trajpilot_core.simworld.world.truth import CaptureTruth, TakeTruth, World, random_uid, stream

GAP_ROWS = (12, 45)
"""Timesync rows between two takes of a capture, and before the first and after the last."""


def sample_world(config: WorldConfig) -> World:
    """Draw the world of `config`: labels, intents, operators, captures, takes with their segments.

    Equal configurations give equal worlds. Costs well under a second for hundreds of takes.

    Raises WorldError: there is no such layout, or the vocabulary is too small for the world.
    """
    labels = draw_labels(config)
    rng = stream(config, "names")
    empty = World(
        config=config,
        labels=labels,
        task_names=TASKS[: config.tasks],
        preferred=procedure.draw_preferences(config),
        motion_labels=procedure.draw_motion_labels(config, labels),
        motion_styles=procedure.draw_motion_styles(config),
        look_means=procedure.draw_look_means(config, labels),
        participants=tuple(int(x) for x in 100 + rng.permutation(800)[: config.operators]),
        captures=(),
        takes=(),
    )
    captures: list[CaptureTruth] = []
    takes: list[TakeTruth] = []
    for members in plan_captures(config):
        capture, inside = draw_capture(empty, len(captures), len(takes), members)
        captures.append(capture)
        takes += inside
    good = [i for i, take in enumerate(takes) if take.fault is None]
    n = min(config.dense_takes, len(good))
    dense = {good[(2 * k + 1) * len(good) // (2 * n)] for k in range(n)}  # evenly spread over both splits
    marked = tuple(replace(take, dense=i in dense) for i, take in enumerate(takes))
    return replace(empty, captures=tuple(captures), takes=marked)


Member = tuple[str, str | None]
"""Split and fault of a planned take."""


def plan_captures(config: WorldConfig) -> list[list[Member]]:
    """Return for every capture the split and fault of its takes; broken takes have captures of their own."""
    plan: list[list[Member]] = []
    faults = [kind for kind in layout_of(config.layout).faults if config.videos or kind not in VIDEO_FAULTS]
    for split, n in (("train", config.train_takes), ("val", config.test_takes)):
        members: list[Member] = [(split, None)] * n
        plan += [members[i : i + config.takes_per_capture] for i in range(0, n, config.takes_per_capture)]
    if config.broken == "each":
        rng = stream(config, "faults")
        more = round(config.broken_share * (config.train_takes + config.test_takes))
        kinds = [*faults, *(faults[i] for i in rng.integers(len(faults), size=more))]
        plan += [[("test" if kind == TEST_SPLIT else "train", kind)] for kind in kinds]
    return plan


def draw_capture(
    world: World, number: int, first_take: int, members: list[Member]
) -> tuple[CaptureTruth, list[TakeTruth]]:
    """Draw one capture and its takes; `first_take` is the stream number of its first take."""
    config = world.config
    rng = stream(config, "capture", number)
    operator = draw_operator(config, rng, members[0][0])
    name = f"sim_{rng.bytes(3).hex()}"
    uid, camera = random_uid(rng), "aria01" if rng.random() < 0.75 else "aria02"
    row, takes = int(rng.integers(*GAP_ROWS)), []
    for k, (split, fault) in enumerate(members):
        take = draw_take(world, first_take + k, split, fault, operator)
        takes.append(replace(take, capture=number, name=f"{name}_{k + 1}", first_row=row))
        row += take.n_frames + int(rng.integers(*GAP_ROWS))
    capture = CaptureTruth(
        uid=uid,
        name=name,
        operator=operator,
        camera=camera,
        clock_ns=int(rng.integers(10**11, 9 * 10**13)),
        rows=row,
        exclusive=bool(rng.random() < 0.75),
        geo_columns=bool(rng.random() < 0.25),
    )
    return capture, takes


def draw_operator(config: WorldConfig, rng: np.random.Generator, split: str) -> int:
    """Draw the wearer; in a strict world the last third of the operators appears in test takes only.

    In a layout with unseen wearers they wear the glasses in some of the test takes.
    """
    n_test = max(1, config.operators // 3)
    fitting = config.operators - n_test
    if config.shared_operators:
        some = layout_of(config.layout).has_unseen_wearers and split == "train"
        return int(rng.integers(fitting if some else config.operators))
    return int(rng.integers(fitting)) if split == "train" else fitting + int(rng.integers(n_test))


def draw_take(world: World, index: int, split: str, fault: str | None, operator: int) -> TakeTruth:
    """Draw one take (its capture, name and first row are set by the caller)."""
    config = world.config
    rng = stream(config, "take", index)
    uid, task, intent = random_uid(rng), int(rng.integers(config.tasks)), int(rng.integers(config.intents))
    n = (config.segments if fault is None else config.broken_segments) + int(rng.integers(-1, 2))
    segments = procedure.draw_segments(world, rng, task, intent, operator, n)
    segments = layout_of(config.layout).performed(world, index, segments)
    n_frames = int(np.ceil((segments[-1].end_s + procedure.LEAD_S) * config.fps))
    return TakeTruth(
        uid=uid,
        name="",
        index=index,
        capture=-1,
        task=task,
        intent=intent,
        split=split,
        fault=fault,
        segments=segments,
        n_frames=n_frames,
        first_row=0,
        dense=False,
    )
