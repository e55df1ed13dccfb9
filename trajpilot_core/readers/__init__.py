"""One reader per corpus, all to the same records."""

from trajpilot_core.readers.egoexo4d import EGOEXO4D_ATOMIC
from trajpilot_core.readers.reading import Reader

READERS: dict[str, Reader] = {"egoexo4d_atomic": EGOEXO4D_ATOMIC}
"""IngestConfig.corpus -> its reader: the only registry."""
