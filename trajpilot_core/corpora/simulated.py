"""Whether a corpus is a simulated world: every layout of one has world.json at its root, which says so.

The tree of Ego-Exo4D says it in its records, too (`university_name`); the other formats have no such place.
"""

import json

from trajpilot_core.errors import TakeFault
from trajpilot_core.store.corpus_files import Corpus, read_whole

WORLD_FILE = "world.json"
"""Relative to the corpus root; a reader lists it among its files where it is there."""


def is_simulated(corpus: Corpus) -> bool:
    """Return whether the corpus says of itself that it was simulated; a file that cannot be read says nothing."""
    try:
        content = json.loads(read_whole(corpus, WORLD_FILE))
    except (FileNotFoundError, TakeFault, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("simulated") is True
