"""Files of a download: each folder is listed once; alternative names are tried in a stated order."""

from collections.abc import Iterable
from functools import cached_property

from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.incoming import parse_json
from trajpilot_core.store.corpus_files import Corpus, file_names, read_whole

WORLD_FILE = "world.json"
"""Marks the root of a simulated corpus, in every layout; a reader lists it among its files if it exists."""


class Folders:
    """The folders of a corpus, each listed once."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._known: dict[str, set[str]] = {}

    def names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, none where it is missing."""
        if folder not in self._known:
            self._known[folder] = file_names(self.corpus, folder)
        return self._known[folder]

    def is_there(self, path: str) -> bool:
        """Return whether a file exists."""
        folder, _, name = path.rpartition("/")
        return name in self.names(folder)

    def first(self, paths: Iterable[str]) -> str | None:
        """Return the first of the paths that exists."""
        return next((path for path in paths if self.is_there(path)), None)

    @cached_property
    def is_simulated(self) -> bool:
        """Whether the corpus is marked as simulated; an unreadable file counts as no mark.

        Ego-Exo4D also has a mark in its records (`university_name`).
        """
        try:
            content = parse_json(read_whole(self.corpus, WORLD_FILE), WORLD_FILE)
        except (FileNotFoundError, TakeFault, InputError):
            return False
        return isinstance(content, dict) and content.get("simulated") is True


def needed(folders: Folders, paths: Iterable[str], advice: str) -> str:
    """Return the first of the paths that exists. Raises InputError: none does."""
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
