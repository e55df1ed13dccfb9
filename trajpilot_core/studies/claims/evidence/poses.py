"""The verdict on poses from video, taken over from a run with the stage `pose_sources`: no world of the claims has it.

`trajpilot docs --poses ROOT` writes it next to the tables of the claims. Source: docs/decisions/poses.md.
"""

from pathlib import Path

from schemas.arrow import rows_of
from schemas.base import Record
from schemas.results import Judgement
from trajpilot_core.errors import InputError
from trajpilot_core.studies.paper_tables.cells import read_run

POSES_FILE = "poses.json"
STAGE, ENTRY = "pose_sources", "pose_judgements"


class PoseFindings(Record):
    """What a run says of the paper's claim on poses from video."""

    dataset: str
    """Corpus, or the paper's name of its benchmark."""
    is_simulated: bool
    judgements: tuple[Judgement, ...]

    @property
    def where(self) -> str:
        """On what it was judged, in words."""
        return f"{'a simulated world in the layout of ' if self.is_simulated else 'recorded takes of '}{self.dataset}"


def keep_poses(root: str, folder: Path) -> Path:
    """Write what the run under a root says, and return the file.

    Args:
        root: of a finished run with the stage `pose_sources`.
        folder: docs/claims.

    Raises:
        InputError: the run has no such stage.
    """
    run = read_run(root)
    table = run.read(STAGE, ENTRY)
    if table is None:
        raise InputError(f"{root} has no output of {STAGE}; make one by trajpilot run --recipe keystep_poses")
    found = PoseFindings(dataset=run.dataset, is_simulated=run.is_simulated, judgements=rows_of(Judgement, table))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / POSES_FILE
    path.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return path


def read_poses(folder: Path) -> PoseFindings | None:
    """Return what `keep_poses` wrote; None where it wrote nothing."""
    path = folder / POSES_FILE
    return PoseFindings.model_validate_json(path.read_bytes()) if path.is_file() else None
