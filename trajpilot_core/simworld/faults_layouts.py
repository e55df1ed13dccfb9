"""Which kinds of damage each layout can have.

A kind that means the same in several layouts has one name; `faults.py` says how files, and `spans.py` how segments,
are damaged. A layout says where a damaged record stands.
"""

from schemas.rejects import RejectCode as Code
from schemas.world import LayoutName
from trajpilot_core.simworld.faults import TAKE_FAULTS, WorldFault

DESCRIPTIONS_ONLY = ("only_rejected", "description_malformed", "text_empty")
"""Kinds that only point descriptions can have, or that have other codes for segments."""
OF_USED_DESCRIPTIONS = ("time_beyond", "time_at_end", "times_equal", "text_empty")
"""Kinds that harm a description only where it becomes a segment; most at a basketball court do not."""
TEST_SPLIT = "test_split"
"""A take of the split whose labels are kept back."""

SEGMENT_FAULTS = (
    WorldFault("time_nan", (Code.TS_INVALID,)),
    WorldFault("time_negative", (Code.TS_INVALID,)),
    WorldFault("time_text", (Code.TS_INVALID,)),
    WorldFault("time_beyond", (Code.SEGMENT_OUTSIDE,)),
    WorldFault("time_at_end", (Code.SEGMENT_CLIPPED,)),
    WorldFault("times_equal", (Code.SEGMENT_EMPTY,)),
    WorldFault("text_empty", (Code.LABEL_EMPTY, Code.LABEL_UNKNOWN, Code.RECORD_MALFORMED)),
    WorldFault("segment_malformed", (Code.RECORD_MALFORMED,)),
)
VIDEO_FAULTS = (
    WorldFault("video_missing", (Code.VIDEO_MISSING,)),
    WorldFault("video_text", (Code.WRONG_TYPE,)),
    WorldFault("video_no_index", (Code.DECODE_FAILED, Code.WRONG_TYPE)),
    WorldFault("video_half", (Code.DECODE_FAILED, Code.FRAME_MISMATCH, Code.SEGMENT_OUTSIDE)),
    WorldFault("video_zeros", (Code.DECODE_FAILED, Code.FRAME_MISMATCH)),
    WorldFault("video_hole", (Code.FRAME_MISMATCH,)),
    WorldFault("video_uneven", (Code.VFR,)),
)
UNKNOWN = WorldFault("take_unknown", (Code.TAKE_UNKNOWN, Code.VIDEO_MISSING))
"""An annotation, or a list, names a video of which there is nothing else."""
TWO_SPLITS = WorldFault("two_splits", (Code.NO_SPLIT,))
"""The same video is annotated as training and as tested."""
HOSTILE = (
    WorldFault("name_parent", (Code.TAKE_NAME_INVALID,)),
    WorldFault("name_absolute", (Code.TAKE_NAME_INVALID,)),
)
VIDEO_ONLY = (*VIDEO_FAULTS, *SEGMENT_FAULTS, *HOSTILE, UNKNOWN, TWO_SPLITS)
"""Kinds of every layout without poses."""

TREE_FAULTS = tuple(
    fault
    for fault in TAKE_FAULTS
    if fault.name not in DESCRIPTIONS_ONLY and fault.name not in {f.name for f in SEGMENT_FAULTS}
)
LAYOUT_FAULTS: dict[LayoutName, tuple[WorldFault, ...]] = {
    "egoexo4d": TAKE_FAULTS,
    "basketball": tuple(fault for fault in TAKE_FAULTS if fault.name not in OF_USED_DESCRIPTIONS),
    "keystep": (*TREE_FAULTS, *SEGMENT_FAULTS, WorldFault(TEST_SPLIT, (Code.UNLABELLED, Code.NO_SPLIT))),
    "goalstep": (
        *VIDEO_ONLY,
        WorldFault("unlabelled", (Code.UNLABELLED,)),
        WorldFault("take_malformed", (Code.RECORD_MALFORMED,)),
        WorldFault("group_part_missing", (Code.VIDEO_MISSING,)),
        WorldFault("group_unknown", (Code.TAKE_UNKNOWN, Code.RECORD_MALFORMED)),
    ),
    "egoper": (
        *VIDEO_ONLY,
        WorldFault("unlabelled", (Code.UNLABELLED,)),
        WorldFault("no_split", (Code.NO_SPLIT, Code.SPLIT_UNUSED)),
        WorldFault("take_malformed", (Code.RECORD_MALFORMED,)),
    ),
    "epic_kitchens": VIDEO_ONLY,
}
"""Kinds of broken takes, one of each in a world with `broken` each."""


def split_of_fault(fault: str) -> str:
    """Return the split that the broken take of a kind belongs to."""
    return "test" if fault == TEST_SPLIT else "train"
