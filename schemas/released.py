"""Features that a corpus publishes, in place of encoding its videos: settings of the stage `features`.

Formats, formulas and what nobody could verify: docs/decisions/released-features.md.
"""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from schemas.base import Record

ReleasedName = Literal["omnivore_video", "omnivore_video_swinl", "egoper_i3d", "epic_slowfast"]
"""Sets of released features that have a reader (trajpilot_core/corpora/released.py)."""
RELEASED_WIDTHS: Mapping[ReleasedName, int] = {
    "omnivore_video": 1536,
    "omnivore_video_swinl": 1536,
    "egoper_i3d": 2048,
    "epic_slowfast": 2304,
}
"""Set -> numbers of a row. Source: docs/decisions/released-features.md."""
HEAD_VIDEO_FPS = 30
"""Frames a second of Ego-Exo4D's head videos. Source: docs.ego-exo4d-data.org, overview of the data."""
RELEASED_NOTE = "released features, not those of the paper: not to be set next to published numbers"
"""Stands wherever results of a run on released features are shown."""
TRAINED_ON_LABELS: Mapping[ReleasedName, str] = {
    "epic_slowfast": "their network was trained on the action labels that are predicted here: to be reported apart",
}
"""Set -> what else has to stand there, where the network of the set has seen labels of the corpus."""


class FeatureSourceConfig(Record):
    """Where the appearance of a segment comes from."""

    source: Literal["encoded", "released"] = "encoded"
    """encoded: frames of the videos through a video encoder; released: files of features that the corpus publishes, for
    which no weights, no decoder and no GPU are needed. Settings of frames and of the encoder then mean nothing, but for
    `tokens`: temporal keeps n_frames / 2 tokens of rows inside the segment."""
    released: ReleasedName = "omnivore_video"
    """Which set of released features is read."""
    released_off_s: float = Field(1.0, ge=0)
    """Most by which the length that the rows of a released file stand for may differ from that of the take's video,
    seconds; a file that differs more is rejected."""


def released_note(name: ReleasedName) -> str:
    """Return what has to stand wherever results of a run on a set of released features are shown."""
    return "; ".join((RELEASED_NOTE, *([TRAINED_ON_LABELS[name]] if name in TRAINED_ON_LABELS else ())))
