"""The record of each corpus, from which everything else that names corpora derives."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.config import IngestConfig
from trajpilot_core.corpora.base import CorpusLister, CorpusReader, Published
from trajpilot_core.corpora.released import ReleasedFeatures


@dataclass(frozen=True)
class Download:
    """A corpus as its own tool lays it out (docs/data.md)."""

    commands: tuple[str, ...]
    """Commands of its own tool that fetch it; `ROOT` is replaced by the folder."""
    access: str
    """How to get access: the form of its licence."""
    pose_file: str | None = None
    """Suffix of the paths of its pose files; None: it releases no poses, they are estimated from the video."""
    without_videos: tuple[str, ...] = ()
    """Commands that fetch what a run with `ingest.video=none` reads, including released features; empty: the videos are
    required, because the metadata do not state their lengths."""

    def commands_for(self, root: str, *, with_videos: bool = True) -> list[str]:
        """Return the commands for a folder, quoted for a shell."""
        wanted = self.commands if with_videos else self.without_videos
        return [command.replace("ROOT", shlex.quote(root)) for command in wanted]


@dataclass(frozen=True)
class CorpusSpec:
    """One corpus, or one task on a corpus, as a run, doctor, the report and the simulated world use it."""

    name: str
    """IngestConfig.corpus."""
    title: str
    """Name in reports and messages."""
    ids: str
    """Prefix of its take ids, and the column `corpus` of the table of takes."""
    read: CorpusReader
    """Its files -> records."""
    listing: CorpusLister
    download: Download
    published: Mapping[str, Published] = field(default_factory=dict)
    """Counts that the paper states, by `CorpusCount.what` (trajpilot_core/corpora/records/tables.py)."""
    horizons: tuple[int, int] | None = None
    """Shortest and longest window; None: those of IngestConfig."""
    has_plans: bool = True
    """Whether its segments are the steps of a plan. Else there are no windows and each segment is scored alone."""
    splits: str = "annotations/splits.json"
    """The source of the splits, for messages."""
    unit: str = "descriptions"
    """Name of the counted unit, for messages."""
    n_classes: Callable[[IngestConfig], int | None] = lambda config: None
    """Requested number of classes where labels are free texts; None: every label is a class."""
    layout: str | None = None
    """WorldConfig.layout of simulated worlds for its reader (simworld/layouts); None: there is none."""
    has_goal: bool = True
    """Whether its windows end in a goal; else they are for anticipation."""
    released: tuple[ReleasedFeatures, ...] = ()
    """Published feature sets that `features.released` may name."""
    is_of_events: bool = False
    """Whether its windows are a segment and the event after it, with the outcome to predict; nothing is planned."""

    def lacks(self) -> tuple[str, ...]:
        """Return what the corpus lacks, each with its substitute."""
        poses = "poses: they are estimated from the video (trajectories.source=pi3, or odometry without a GPU)"
        goal = "goals: its windows are for anticipation, not for planning"
        return (*(() if self.download.pose_file else (poses,)), *(() if self.has_goal else (goal,)))


EGO4D_KEYS = (
    "then `pip install ego4d`; the download keys that come by e-mail expire after 14 days: "
    "where a download answers 403, send the form again"
)
"""The next step after the forms of Ego4D and of Ego-Exo4D."""


def places(folders: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Return the paths of files of these names in these folders, by folder."""
    return tuple(f"{folder}/{name}" if folder else name for folder in folders for name in names)
