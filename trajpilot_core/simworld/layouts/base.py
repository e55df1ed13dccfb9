"""What a layout is: where the files of a take lie, and what is written next to them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from trajpilot_core.simworld.faults import NAMES, TakeContents
from trajpilot_core.simworld.world.truth import TakeTruth, World, stream

NamedFiles = Iterator[tuple[str, bytes]]
"""Path relative to the corpus root, content."""


@dataclass(frozen=True)
class Layout:
    """One way to write a world."""

    has_poses: bool
    """Whether the layout releases trajectories."""
    parts: Callable[[World, TakeTruth], tuple[int, ...]]
    """Frames in each of the consecutive video files of a take."""
    take_files: Callable[[World, TakeTruth, TakeContents], NamedFiles]
    """The files of a take, from their (perhaps damaged) content."""
    rest: Callable[[World], NamedFiles]
    """Everything else: metadata, annotations, lists."""


def one_file(world: World, take: TakeTruth) -> tuple[int, ...]:
    """Return the parts of a take that is one file."""
    return (take.n_frames,)


def rank_of(world: World, take: TakeTruth) -> int:
    """Return the place of an unbroken take among the unbroken ones of its split; -1 for a broken take.

    Habits that every world must have, however small, go by it.
    """
    if take.fault is not None:
        return -1
    return [t.index for t in world.takes if t.fault is None and t.split == take.split].index(take.index)


def shuffled(world: World) -> list[TakeTruth]:
    """Return the takes in an order that says nothing about splits or faults."""
    return [world.takes[int(i)] for i in stream(world.config, "order").permutation(len(world.takes))]


def annotated_in(take: TakeTruth, split: str) -> bool:
    """Whether the take stands among the annotations of `train` or `val`."""
    return take.split == split or take.fault == "two_splits"


def hostile(take: TakeTruth, name: str) -> str:
    """Return the name under which a take is annotated: its own, or a hostile one where that is its fault."""
    return NAMES.get(take.fault or "", name)


def as_json(value: Any) -> bytes:
    """Return a JSON document; NaN is written as Python's json writes it, as in real files."""
    return json.dumps(value, indent=1).encode()
