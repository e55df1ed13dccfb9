"""Annotated segments of a take before a layout writes them, and what may be wrong with one.

A span's times are numbers in an unbroken take; in a broken one they may be anything that a file can hold.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from schemas.rejects import RejectCode as Code
from trajpilot_core.simworld.faults import TAKE_FAULTS, VIDEO_FAULTS, Faults
from trajpilot_core.simworld.world.truth import TakeTruth, World

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
    """Return the spans of a take with its fault applied to one of the steps (unchanged where it lies elsewhere)."""
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
