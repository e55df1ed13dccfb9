"""One reader per corpus, all to the same records."""

from trajpilot_core.errors import NotBuiltError
from trajpilot_core.readers.basketball import EGOEXO4D_BASKETBALL
from trajpilot_core.readers.egoexo4d import EGOEXO4D_ATOMIC
from trajpilot_core.readers.egoper import EGOPER
from trajpilot_core.readers.epic_kitchens import EPIC_KITCHENS
from trajpilot_core.readers.goalstep import GOALSTEP
from trajpilot_core.readers.keystep import EGOEXO4D_KEYSTEP
from trajpilot_core.readers.reading import Reader

READERS: dict[str, Reader] = {
    "egoexo4d_atomic": EGOEXO4D_ATOMIC,
    "egoexo4d_keystep": EGOEXO4D_KEYSTEP,
    "egoexo4d_basketball": EGOEXO4D_BASKETBALL,
    "goalstep": GOALSTEP,
    "egoper": EGOPER,
    "epic_kitchens": EPIC_KITCHENS,
}
"""IngestConfig.corpus -> its reader: the only registry."""


def reader_of(corpus: str) -> Reader:
    """Return the reader of a corpus.

    Raises:
        NotBuiltError: there is none yet.
    """
    if corpus not in READERS:
        raise NotBuiltError(f"the reader of {corpus} is not built yet; built are {', '.join(READERS)}")
    return READERS[corpus]
