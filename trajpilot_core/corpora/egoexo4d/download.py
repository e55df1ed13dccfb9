"""What a download of Ego-Exo4D holds; each of its tasks adds its annotation files."""

from trajpilot_core.corpora.egoexo4d.takes import CAPTURES, SPLITS, TAKES, TRAJECTORY
from trajpilot_core.corpora.spec import EGO4D_KEYS, Download, FileKind

ACCESS = f"sign the licence at https://ego4d.dev/request/ego-exo4d (two days), {EGO4D_KEYS}"
PARTS = "metadata annotations captures take_trajectory"


def download_of(file: str) -> Download:
    """Return the download of a task.

    Args:
        file: its annotation files, with `{}` for the released split.
    """
    paths = [file.format(split) for split in ("train", "val")]
    return Download(
        kinds=(
            FileKind("takes", (TAKES,)),
            FileKind("splits", (SPLITS,)),
            *(FileKind(path.rpartition("/")[2], (path,)) for path in paths),
        ),
        commands=(f"egoexo -o ROOT --parts {PARTS} downscaled_takes/448",),
        access=ACCESS,
        pose_file=TRAJECTORY,
        dispensable=(CAPTURES,),
        without_videos=(f"egoexo -o ROOT --parts {PARTS} features/omnivore_video",),
    )
