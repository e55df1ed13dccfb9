"""What was last requested of a root, so that `status` and `plan` need not be given it again."""

from schemas.base import Record
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.locations import ALLOWED_PROTOCOLS
from trajpilot_core.store.manifest import read_sealed, seal

NAME = "last.json"


class LastRun(Record):
    """The last run below a root; it decides nothing."""

    config: PipelineConfig
    data_root: str
    device: str


def remember_run(config: PipelineConfig, run: RunOptions) -> None:
    """Note at the root what is asked of it now."""
    note = LastRun(config=config, data_root=run.data_root, device=run.device)
    open_folder(run.root, run.protocols).replace(NAME, seal(note))


def recall_run(root: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> LastRun | None:
    """Return what was last requested of a root; None where it was not noted, or an older version did."""
    try:
        return read_sealed(open_folder(root, allowed), LastRun, NAME)
    except StoreError:
        return None
