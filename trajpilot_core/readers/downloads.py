"""What a download of each corpus holds, and the commands that fetch it with the corpus' own tool (docs/data.md)."""

import shlex
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """Files of one kind that a root must hold before anything can be read."""

    what: str
    any_of: tuple[str, ...]
    """Paths under the root, one of which is enough."""


@dataclass(frozen=True)
class Download:
    """One corpus as its own tool lays it out."""

    title: str
    kinds: tuple[Kind, ...]
    commands: tuple[str, ...]
    """`ROOT` stands for the folder."""
    access: str
    """What has to be signed or asked first."""
    has_poses: bool = False

    def commands_for(self, root: str) -> list[str]:
        """Return the commands for a folder, quoted for a shell."""
        return [command.replace("ROOT", shlex.quote(root)) for command in self.commands]


EGOEXO4D_ACCESS = "sign the licence at https://ego4ddataset.com/egoexo-license (two days), then `pip install ego4d`"
EGOEXO4D_METADATA = (Kind("takes", ("takes.json",)), Kind("splits", ("annotations/splits.json",)))


def _egoexo4d(title: str, names: tuple[str, ...], parts: str, *, has_poses: bool) -> Download:
    kinds = (*EGOEXO4D_METADATA, *(Kind(name, (f"annotations/{name}",)) for name in names))
    return Download(title, kinds, (f"egoexo -o ROOT --parts {parts}",), EGOEXO4D_ACCESS, has_poses)


DESCRIPTIONS = ("atomic_descriptions_train.json", "atomic_descriptions_val.json")
WITH_POSES = "metadata annotations captures take_trajectory downscaled_takes/448"
GOALSTEP_PLACES = ("v2/annotations", "v2_1/annotations", "annotations", "ego4d-goalstep/data", "")
"""Where GoalStep's annotation files are looked for: a download, a copy beside it, a clone of their repository."""
EPIC_PLACES = ("", "annotations", "epic-kitchens-100-annotations")
"""Where EPIC-KITCHENS-100's tables are looked for; the last is what a clone of their repository is called."""


def places(folders: tuple[str, ...], *names: str) -> tuple[str, ...]:
    """Return the paths of files of these names in these folders, by folder."""
    return tuple(f"{folder}/{name}" if folder else name for folder in folders for name in names)


DOWNLOADS: dict[str, Download] = {
    "egoexo4d_atomic": _egoexo4d("Ego-Exo4D, atomic descriptions", DESCRIPTIONS, WITH_POSES, has_poses=True),
    "egoexo4d_basketball": _egoexo4d("Ego-Exo4D, basketball shots", DESCRIPTIONS, WITH_POSES, has_poses=True),
    "egoexo4d_keystep": _egoexo4d(
        "Ego-Exo4D, keysteps", ("keystep_train.json", "keystep_val.json"), WITH_POSES, has_poses=True
    ),
    "goalstep": Download(
        "Ego4D GoalStep",
        (
            Kind("training annotations", places(GOALSTEP_PLACES, "goalstep_train.json")),
            Kind("validation annotations", places(GOALSTEP_PLACES, "goalstep_val.json", "goalstep_valid.json")),
            Kind("groups of videos", places(GOALSTEP_PLACES, "goalstep_video_groups.tsv")),
            Kind("metadata", ("ego4d.json", "v2/ego4d.json", "v2_1/ego4d.json")),
        ),
        (
            "ego4d --output_directory ROOT --datasets annotations full_scale --benchmarks goalstep --metadata",
            "git clone https://github.com/facebookresearch/ego4d-goalstep ROOT/ego4d-goalstep",
        ),
        "sign the licence at https://ego4ddataset.com/ego4d-license (two days), then `pip install ego4d`",
    ),
    "egoper": Download(
        "EgoPER",
        (Kind("annotations", ("annotation.json",)),),
        (),
        "ask its authors by e-mail (https://www.khoury.northeastern.edu/home/eelhami/egoper.htm); unpack each "
        "task's videos to ROOT/<task>/trim_videos, its three lists to ROOT/<task>, annotation.json to ROOT",
    ),
    "epic_kitchens": Download(
        "EPIC-KITCHENS-100",
        (
            Kind("training actions", places(EPIC_PLACES, "EPIC_100_train.csv")),
            Kind("validation actions", places(EPIC_PLACES, "EPIC_100_validation.csv")),
            Kind("verb classes", places(EPIC_PLACES, "EPIC_100_verb_classes.csv")),
            Kind("noun classes", places(EPIC_PLACES, "EPIC_100_noun_classes.csv")),
        ),
        (
            "git clone https://github.com/epic-kitchens/epic-kitchens-100-annotations "
            "ROOT/epic-kitchens-100-annotations",
            "git clone https://github.com/epic-kitchens/epic-kitchens-download-scripts",
            "python epic-kitchens-download-scripts/epic_downloader.py --videos --action-recognition --train --val "
            "--output-path ROOT",
        ),
        "annotations are CC BY-NC 4.0: no commercial use",
    ),
}
"""IngestConfig.corpus -> how it is got."""
