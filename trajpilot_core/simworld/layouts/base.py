"""Layouts: the paths of a take's files, its annotated segments before they are written, layouts by name.

A span's times are numbers in an unbroken take; in a broken one they may be anything that a file can hold. Each layout
is a module here, called as the layout; the corpora list them (corpora/registry.py).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, NamedTuple, cast

from schemas.rejects import RejectCode as Code
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.corpora.registry import layouts
from trajpilot_core.errors import WorldError
from trajpilot_core.simworld.faults import NAMES, TAKE_FAULTS, VIDEO_FAULTS, Faults, TakeContents
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
    """Whether some operators wear the glasses in tested takes only."""


def rank_of(world: World, take: TakeTruth) -> int:
    """Return the place of an unbroken take among the unbroken ones of its split; -1 for a broken take.

    Habits that every world must have, however small, go by it.
    """
    if take.fault is not None:
        return -1
    return [t.index for t in world.takes if t.fault is None and t.split == take.split].index(take.index)


def shuffled(world: World) -> list[TakeTruth]:
    """Return the takes in an order independent of splits and faults."""
    return [world.takes[int(i)] for i in stream(world.config, "order").permutation(len(world.takes))]


def annotated_in(take: TakeTruth, split: str) -> bool:
    """Whether the take is in the annotations of `train` or `val`."""
    return take.split == split or take.fault == "two_splits"


def hostile(take: TakeTruth, name: str) -> str:
    """Return the name under which a take is annotated: its own, or a hostile one where that is its fault."""
    return NAMES.get(take.fault or "", name)


def as_json(value: Any) -> bytes:
    """Return a JSON document; NaN is written as Python's json writes it, as in real files."""
    return json.dumps(value, indent=1).encode()


Time = float | str


@dataclass(frozen=True)
class AnnotatedSpan:
    """One annotated segment; seconds from the start of the take's video."""

    label: int
    """Label of the world; meaningless where `is_background`."""
    start: Time
    end: Time
    is_background: bool = False
    is_nameless: bool = False
    """The annotation names no step."""
    is_malformed: bool = False
    """Fields of the record are missing."""
    error_type: int = 0
    """EgoPER: what went wrong in the step; 0: nothing."""


def spans_of(take: TakeTruth, decimals: int) -> list[AnnotatedSpan]:
    """Return the performed steps with their true times, rounded to `decimals` of a second."""
    return [AnnotatedSpan(s.label, round(s.start_s, decimals), round(s.end_s, decimals)) for s in take.segments]


def break_spans(world: World, take: TakeTruth, spans: list[AnnotatedSpan]) -> list[AnnotatedSpan]:
    """Return the spans of a take with its fault applied to one of the steps (unchanged where it is elsewhere)."""
    damage = SPAN_DAMAGE.get(take.fault or "")
    steps = [i for i, span in enumerate(spans) if not span.is_background]
    if damage is None or not steps:
        return spans
    which, change = damage
    at = steps[which % len(steps)]
    return [*spans[:at], change(spans[at], world.take_duration_s(take)), *spans[at + 1 :]]


Change = Callable[[AnnotatedSpan, float], AnnotatedSpan]

SPAN_DAMAGE: dict[str, tuple[int, Change]] = {
    "time_nan": (1, lambda span, _: replace(span, start=float("nan"))),
    "time_negative": (0, lambda span, _: replace(span, start=-3.5)),
    "time_text": (1, lambda span, _: replace(span, start="12 seconds")),
    "time_beyond": (-1, lambda span, end: replace(span, start=round(end + 6.0, 2), end=round(end + 8.0, 2))),
    "time_at_end": (-1, lambda span, end: replace(span, end=round(end + 0.5, 2))),
    "times_equal": (1, lambda span, _: replace(span, end=span.start)),
    "text_empty": (1, lambda span, _: replace(span, is_nameless=True)),
    "segment_malformed": (1, lambda span, _: replace(span, is_malformed=True)),
}
"""Fault -> which step it hits, and what becomes of its span (given the length of the video in seconds)."""
SEGMENT_FAULTS: Faults = {
    **{kind: TAKE_FAULTS.get(kind, ()) for kind in SPAN_DAMAGE},
    "text_empty": (Code.LABEL_EMPTY, Code.LABEL_UNKNOWN, Code.RECORD_MALFORMED),
    "segment_malformed": (Code.RECORD_MALFORMED,),
}
VIDEO_ONLY: Faults = {
    **VIDEO_FAULTS,
    **SEGMENT_FAULTS,
    "name_parent": (Code.TAKE_NAME_INVALID,),
    "name_absolute": (Code.TAKE_NAME_INVALID,),
    "take_unknown": (Code.TAKE_UNKNOWN, Code.VIDEO_MISSING),
    "two_splits": (Code.NO_SPLIT,),
}
"""Kinds of every layout without poses. take_unknown: an annotation, or a list, names a video of which there is nothing
else; two_splits: the same video is annotated as training and as tested."""


def layout_of(name: str) -> Layout:
    """Return the `LAYOUT` of the module of this name in this folder. Raises WorldError: there is no such layout."""
    if name not in layouts():
        raise WorldError(f"no simulated world is written in the layout {name!r}; there are {', '.join(layouts())}")
    return cast(Layout, import_module(f"{__package__}.{name}").LAYOUT)
