"""What lies where in a download: each folder is listed once; names that may vary are looked for in a stated order."""

from collections.abc import Iterable, Iterator
from functools import cached_property

from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import Fault
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.incoming import parse_json
from trajpilot_core.store.corpus_files import Corpus, file_names, leftovers, read_whole

WORLD_FILE = "world.json"
"""Relative to the root of a simulated corpus, in every layout; a reader lists it among its files where it is there."""


def is_simulated(corpus: Corpus) -> bool:
    """Return whether the corpus says of itself that it was simulated; a file that cannot be read says nothing.

    The tree of Ego-Exo4D says it in its records, too (`university_name`); the other formats have no such place.
    """
    try:
        content = parse_json(read_whole(corpus, WORLD_FILE), WORLD_FILE)
    except (FileNotFoundError, TakeFault, InputError):
        return False
    return isinstance(content, dict) and content.get("simulated") is True


class Folders:
    """The folders of a corpus, each asked of the storage once."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._known: dict[str, set[str]] = {}

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, none where it is absent."""
        if folder not in self._known:
            self._known[folder] = file_names(self.corpus, folder)
        return self._known[folder]

    def is_there(self, path: str) -> bool:
        """Return whether a file is there."""
        folder, _, name = path.rpartition("/")
        return name in self.names(folder)

    def first(self, paths: Iterable[str]) -> str | None:
        """Return the first of the paths that is there."""
        return next((path for path in paths if self.is_there(path)), None)

    @cached_property
    def is_simulated(self) -> bool:
        """Whether the corpus says of itself that it was simulated."""
        return is_simulated(self.corpus)

    def leftovers(self) -> Iterator[str]:
        """Yield what broken downloads left in the folders that were asked for, in order."""
        for folder, names in sorted(self._known.items()):
            yield from (f"{folder}/{name}" if folder else name for name in leftovers(names))


def needed(folders: Folders, paths: Iterable[str], advice: str) -> str:
    """Return the first of the paths that is there. Raises InputError: none is."""
    tried = list(paths)
    path = folders.first(tried)
    if path is None:
        raise InputError(f"none of {', '.join(tried)} is under {folders.corpus.root}; {advice}")
    return path


def read_document(corpus: Corpus, path: str, advice: str = "download it (docs/data.md)") -> bytes:
    """Return the content of a required file. Raises InputError: it is missing, or changed while it was read."""
    try:
        return read_whole(corpus, path)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing under {corpus.root}; {advice}") from error
    except TakeFault as fault:
        raise InputError(
            f"{path} cannot be read: {fault.detail}; run again when nothing writes to the corpus"
        ) from fault


def leftover_rejects(leftover_files: Iterable[tuple[str, str]]) -> Iterator[Reject]:
    """Yield a warning for each file that a broken download left.

    Args:
        leftover_files: take that it belongs to, or empty, and its path.
    """
    for take, path in leftover_files:
        yield Fault(RejectCode.LEFTOVER_FILE, f"{path} is left from an interrupted download").reject(take, 0, path)
