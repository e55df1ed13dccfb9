"""What a layout is: where the files of a take lie, and what is written next to them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.simworld.faults import NAMES, Faults, TakeContents
from trajpilot_core.simworld.world.truth import SegmentTruth, TakeTruth, World, stream

NamedFiles = Iterator[tuple[str, bytes]]
"""Path relative to the corpus root, content."""


class PlacedTake(NamedTuple):
    """One take of the tables in the world."""

    take: TakeTruth
    start_s: float = 0.0
    """When its video starts in the take, seconds: a layout may cut a take in several files."""


@dataclass(frozen=True)
class TableSteps:
    """How the tables of the layout's reader show the true steps: each by one segment, named after its label alone.

    That is what exact ceilings need (docs/decisions/classes.md); steps may be absent by chance, not by their label.
    """

    label_ids: Callable[[World], Sequence[str]]
    """(V,) label id of a step of each label; equal ones are one answer."""
    takes: Callable[[World], Mapping[str, PlacedTake]] = lambda world: {
        take_id(take.uid): PlacedTake(take) for take in world.takes
    }
    """Take id -> what it is."""
    are_points: bool = False
    """A segment's anchor is a time point of an annotator; else it is the middle of an annotated interval."""


@dataclass(frozen=True)
class Layout:
    """One way to write a world."""

    take_files: Callable[[World, TakeTruth, TakeContents], NamedFiles]
    """The files of a take, from their (perhaps damaged) content."""
    rest: Callable[[World], NamedFiles]
    """Everything else: metadata, annotations, lists."""
    faults: Faults
    """Kinds of broken takes, one of each in a world with `broken` each."""
    steps: TableSteps | str
    """What exact ceilings need; or why there is none, for people."""
    tiny: Mapping[str, object] = field(default_factory=lambda: {"train_takes": 9, "test_takes": 5, "operators": 6})
    """What its preset changes of the tiny world, so that every label occurs in both splits."""
    has_poses: bool = False
    """Whether the layout releases trajectories."""
    parts: Callable[[World, TakeTruth], tuple[int, ...]] = lambda _, take: (take.n_frames,)
    """Frames in each of the consecutive video files of a take."""
    performed: Callable[[World, int, tuple[SegmentTruth, ...]], tuple[SegmentTruth, ...]] = (
        lambda world, index, segments: segments
    )
    """(world, number of a take, its steps as drawn) -> its steps, where more than procedure and intent decides them."""
    released_name: Callable[[World, TakeTruth], str] = lambda world, take: (
        f"{take.uid}_{world.captures[take.capture].camera}"
    )
    """What the file of released features of a take is called, without its end."""
    has_unseen_wearers: bool = False
    """Whether some operators wear the glasses in tested takes only, also where operators are shared."""


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
