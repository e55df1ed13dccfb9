"""What the project knows of a corpus: one record each, from which everything else that names corpora derives."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.config import IngestConfig
from trajpilot_core.corpora.base import CorpusLister, CorpusReader, Published
from trajpilot_core.corpora.released import ReleasedFeatures


@dataclass(frozen=True)
class FileKind:
    """Files of one kind that a root must hold before anything can be read."""

    what: str
    any_of: tuple[str, ...]
    """Paths under the root, one of which is enough."""


@dataclass(frozen=True)
class Download:
    """A corpus as its own tool lays it out (docs/data.md)."""

    kinds: tuple[FileKind, ...]
    commands: tuple[str, ...]
    """They fetch it with its own tool; `ROOT` stands for the folder."""
    access: str
    """What has to be signed or asked first: the form of its licence."""
    pose_file: str | None = None
    """How the paths of its pose files end; None: it releases no poses, they have to come from the video."""
    dispensable: tuple[str, ...] = ()
    """Files that ingest reads where they are there, and does without where they are not."""
    without_videos: tuple[str, ...] = ()
    """Commands that fetch what a run with `ingest.video=none` reads, released features among it; empty: its metadata do
    not state how long the videos are, so that nothing goes without them."""

    def commands_for(self, root: str, *, with_videos: bool = True) -> list[str]:
        """Return the commands for a folder, quoted for a shell."""
        wanted = self.commands if with_videos else self.without_videos
        return [command.replace("ROOT", shlex.quote(root)) for command in wanted]


@dataclass(frozen=True)
class CorpusSpec:
    """One corpus, or one task on a corpus: what a run, doctor, the report and the simulated world ask of it."""

    name: str
    """IngestConfig.corpus."""
    title: str
    """As it is printed."""
    ids: str
    """What its take ids begin with, and the column `corpus` of the table of takes."""
    read: CorpusReader
    """Its files -> records."""
    listing: CorpusLister
    download: Download
    published: Mapping[str, Published] = field(default_factory=dict)
    """Counts that the paper states, by `CorpusCount.what` (trajpilot_core/corpora/records/corpus_statistics.py)."""
    horizons: tuple[int, int] | None = None
    """Shortest and longest window; None: those of IngestConfig."""
    has_plans: bool = True
    """Its segments follow one another as the steps of a plan. Else there are no windows, nothing is planned, and each
    segment is scored alone."""
    splits: str = "annotations/splits.json"
    """Where the corpus says which split a take is in, for messages."""
    unit: str = "descriptions"
    """What is counted, for messages."""
    n_classes: Callable[[IngestConfig], int | None] = lambda config: None
    """Number of classes aimed at where labels are free texts; None: every label is a class of its own."""
    layout: str | None = None
    """WorldConfig.layout in which a simulated world is written for its reader (simworld/layouts); None: in none."""
    has_goal: bool = True
    """Whether its windows end in a goal that a plan leads to; else they are for anticipation."""
    released: tuple[ReleasedFeatures, ...] = ()
    """Sets of features that it publishes and `features.released` may name."""
    is_of_events: bool = False
    """Its windows are one segment and the event after it, whose outcome is predicted; nothing is planned."""

    def lacks(self) -> tuple[str, ...]:
        """Return what the corpus does not have, each with what stands in for it."""
        poses = "poses: they are estimated from the video (trajectories.source=pi3, or odometry without a GPU)"
        goal = "goals: its windows are for anticipation, not for planning"
        return (*(() if self.download.pose_file else (poses,)), *(() if self.has_goal else (goal,)))


EGO4D_KEYS = (
    "then `pip install ego4d`; the download keys that come by e-mail expire after 14 days: "
    "where a download answers 403, send the form again"
)
"""What the forms of Ego4D and of Ego-Exo4D lead to."""


def places(folders: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Return the paths of files of these names in these folders, by folder."""
    return tuple(f"{folder}/{name}" if folder else name for folder in folders for name in names)
