"""Features that a corpus publishes, used instead of encoding its videos: settings of the stage `features`.

Formats, formulas and what could not be verified: docs/decisions/released-features.md.
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
"""Set -> width of a row. Source: docs/decisions/released-features.md."""
HEAD_VIDEO_FPS = 30
"""Frames a second of Ego-Exo4D's head videos. Source: docs.ego-exo4d-data.org, overview of the data."""
RELEASED_NOTE = "released features, not those of the paper: not to be set next to published numbers"
"""Shown wherever results of a run on released features appear."""
TRAINED_ON_LABELS: Mapping[ReleasedName, str] = {
    "epic_slowfast": "their network was trained on the action labels that are predicted here: to be reported apart",
}
"""Set -> additional note if the network of the set was trained on labels of the corpus."""


class FeatureSourceConfig(Record):
    """Where the appearance of a segment comes from."""

    source: Literal["encoded", "released"] = "encoded"
    """encoded: a video encoder reads frames of the videos; released: files of features that the corpus publishes,
    without weights, decoder or GPU. Settings of frames and encoder are then ignored except `tokens`: temporal keeps
    n_frames / 2 tokens from rows inside the segment."""
    released: ReleasedName = "omnivore_video"
    """Which set of released features is read."""
    released_off_s: float = Field(1.0, ge=0)
    """Largest difference between the length covered by the rows of a released file and that of the take's video,
    seconds; a file that differs more is rejected."""


def released_note(name: ReleasedName) -> str:
    """Return the note to show with results of a run on a set of released features."""
    return "; ".join((RELEASED_NOTE, *([TRAINED_ON_LABELS[name]] if name in TRAINED_ON_LABELS else ())))
