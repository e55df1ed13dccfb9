"""The options of the last run of a root, the defaults of `status` and `plan`."""

from schemas.base import Record
from schemas.config import PipelineConfig, RecipeName, RunOptions
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.locations import ALLOWED_PROTOCOLS
from trajpilot_core.store.manifest import read_sealed, seal

NAME = "last.json"


class LastRun(Record):
    """The last run of a root; nothing depends on it."""

    config: PipelineConfig
    data_root: str
    device: str
    recipe: RecipeName
    """Whose settings `config` started from."""


def remember_run(config: PipelineConfig, run: RunOptions) -> None:
    """Write the settings and options of this run to the root."""
    note = LastRun(config=config, data_root=run.data_root, device=run.device, recipe=run.recipe)
    open_folder(run.root, run.protocols).replace(NAME, seal(note))


def recall_run(root: str, allowed: tuple[str, ...] = ALLOWED_PROTOCOLS) -> LastRun | None:
    """Return the last run of a root; None where none was noted, or an older version wrote it."""
    try:
        return read_sealed(open_folder(root, allowed), LastRun, NAME)
    except StoreError:
        return None
