"""Draw a whole world: pure and cheap; files are written from it (write.py). And the worlds that have a name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from schemas.world import WorldConfig, court_world, demo_world, laptop_world, soak_world, tiny_world
from trajpilot_core.corpora.registry import layouts
from trajpilot_core.simworld.faults import TEST_SPLIT, VIDEO_FAULTS
from trajpilot_core.simworld.layouts.base import layout_of
from trajpilot_core.simworld.world import procedure
from trajpilot_core.simworld.world.procedure import TASKS, draw_labels
from trajpilot_core.simworld.world.truth import CaptureTruth, TakeTruth, World, random_uid, stream

GAP_ROWS = (12, 45)
"""Timesync rows between two takes of a capture, and before the first and after the last."""
Member = tuple[str, str | None]
"""Split and fault of a planned take."""


def sample_world(config: WorldConfig) -> World:
    """Draw the world of `config`: labels, intents, operators, captures, takes with their segments.

    Equal configurations give equal worlds. Costs well under a second for hundreds of takes.

    Raises WorldError: there is no such layout, or the vocabulary is too small for the world.
    """
    labels = draw_labels(config)
    rng = stream(config, "names")
    motion_labels, motion_styles = procedure.draw_motions(config, labels)
    empty = World(
        config=config,
        labels=labels,
        task_names=TASKS[: config.tasks],
        preferred=procedure.draw_preferences(config),
        motion_labels=motion_labels,
        motion_styles=motion_styles,
        look_means=procedure.draw_look_means(config, labels),
        participants=tuple(int(x) for x in 100 + rng.permutation(800)[: config.operators]),
        captures=(),
        takes=(),
    )
    plan: list[list[Member]] = []  # broken takes have captures of their own
    for split, n in (("train", config.train_takes), ("val", config.test_takes)):
        good: list[Member] = [(split, None)] * n
        plan += [good[i : i + config.takes_per_capture] for i in range(0, n, config.takes_per_capture)]
    if config.broken == "each":
        faults = [kind for kind in layout_of(config.layout).faults if config.videos or kind not in VIDEO_FAULTS]
        plan += [[("test" if kind == TEST_SPLIT else "train", kind)] for kind in faults]
    captures: list[CaptureTruth] = []
    takes: list[TakeTruth] = []
    for members in plan:
        capture, inside = draw_capture(empty, len(captures), len(takes), members)
        captures.append(capture)
        takes += inside
    whole = [i for i, take in enumerate(takes) if take.fault is None]
    n = min(config.dense_takes, len(whole))
    dense = {whole[(2 * k + 1) * len(whole) // (2 * n)] for k in range(n)}  # evenly spread over both splits
    marked = tuple(replace(take, dense=i in dense) for i, take in enumerate(takes))
    return replace(empty, captures=tuple(captures), takes=marked)


def draw_capture(
    world: World, number: int, first_take: int, members: list[Member]
) -> tuple[CaptureTruth, list[TakeTruth]]:
    """Draw one capture and its takes; `first_take` is the stream number of its first take.

    In a layout with unseen wearers the last third of the operators wear the glasses in test takes only.
    """
    config, layout = world.config, layout_of(world.config.layout)
    rng, is_train = stream(config, "capture", number), members[0][0] == "train"
    fitting = config.operators - max(1, config.operators // 3)
    operator = int(rng.integers(fitting if layout.has_unseen_wearers and is_train else config.operators))
    name = f"sim_{rng.bytes(3).hex()}"
    uid, camera = random_uid(rng), "aria01" if rng.random() < 0.75 else "aria02"
    row, takes = int(rng.integers(*GAP_ROWS)), list[TakeTruth]()
    for k, (split, fault) in enumerate(members):
        index = first_take + k
        own = stream(config, "take", index)
        take_uid, task, intent = random_uid(own), int(own.integers(config.tasks)), int(own.integers(config.intents))
        n = (config.segments if fault is None else config.broken_segments) + int(own.integers(-1, 2))
        drawn = procedure.draw_segments(world, own, task, intent, operator, n)
        segments = layout.performed(world, index, drawn)
        n_frames = int(np.ceil((segments[-1].end_s + procedure.LEAD_S) * config.fps))
        takes.append(
            TakeTruth(
                uid=take_uid,
                name=f"{name}_{k + 1}",
                index=index,
                capture=number,
                task=task,
                intent=intent,
                split=split,
                fault=fault,
                segments=segments,
                n_frames=n_frames,
                first_row=row,
                dense=False,
            )
        )
        row += n_frames + int(rng.integers(*GAP_ROWS))
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


def tiny_layout(layout: str) -> WorldConfig:
    """The tiny world written in another layout: a few good takes, and one for every fault that the layout can have."""
    return tiny_world().replace(name=f"tiny_{layout}", layout=layout, **layout_of(layout).tiny)


PRESETS: dict[str, Callable[[], WorldConfig]] = {
    "demo": demo_world,
    "tiny": tiny_world,
    "tiny_laptop": laptop_world,
    "tiny_epic_released": lambda: tiny_layout("epic_kitchens").replace(
        name="tiny_epic_released", released="epic_slowfast", videos=False
    ),
    "soak": soak_world,
    "court": court_world,
    **{f"tiny_{layout}": partial(tiny_layout, layout) for layout in layouts() if layout != tiny_world().layout},
}
"""The worlds of schemas/world.py, and a tiny one in every other layout."""
