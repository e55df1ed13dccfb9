"""What lies where in a download: each folder is listed once; names that may vary are looked for in a stated order."""

from collections.abc import Iterable, Iterator

from schemas.rejects import Reject, RejectCode
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.readers.corpus import Corpus, Stat, leftovers, listing, read_whole
from trajpilot_core.readers.reading import Fault
from trajpilot_core.readers.strict_csv import CsvFaultError
from trajpilot_core.readers.strict_json import JsonFaultError


class Folders:
    """The folders of a corpus, each asked of the storage once."""

    def __init__(self, corpus: Corpus) -> None:
        self.corpus = corpus
        self._known: dict[str, dict[str, Stat]] = {}

    def names(self, folder: str) -> dict[str, Stat]:
        """Return name -> (size, change) of the files in a folder, empty where it is absent."""
        if folder not in self._known:
            self._known[folder] = listing(self.corpus, folder)
        return self._known[folder]

    def is_there(self, path: str) -> bool:
        """Say whether a file is there."""
        folder, _, name = path.rpartition("/")
        return name in self.names(folder)

    def first(self, paths: Iterable[str]) -> str | None:
        """Return the first of the paths that is there."""
        return next((path for path in paths if self.is_there(path)), None)

    def leftovers(self) -> Iterator[str]:
        """Yield what broken downloads left in the folders that were asked for, in order."""
        for folder, names in sorted(self._known.items()):
            yield from (f"{folder}/{name}" if folder else name for name in leftovers(names))


def needed(folders: Folders, paths: Iterable[str], advice: str) -> str:
    """Return the first of the paths that is there.

    Raises:
        InputError: none is.
    """
    tried = list(paths)
    found = folders.first(tried)
    if found is None:
        raise InputError(f"none of {', '.join(tried)} is under {folders.corpus.root}; {advice}")
    return found


def file_fault(error: JsonFaultError | CsvFaultError | TakeFault) -> Fault:
    """Return why a file as a whole cannot be used."""
    if isinstance(error, TakeFault):
        return Fault(error.code, error.detail)
    return Fault(RejectCode.RECORD_MALFORMED, error.detail)


def read_document(corpus: Corpus, path: str) -> bytes:
    """Return the content of a file that nothing goes without.

    Raises:
        InputError: it is not there, or changed while it was read.
    """
    try:
        return read_whole(corpus, path)
    except FileNotFoundError as error:
        raise InputError(f"{path} is missing under {corpus.root}; download it") from error
    except TakeFault as fault:
        raise InputError(f"{path} {fault.detail}; run again when nothing writes to the corpus") from fault


def leftover_rejects(folders: Folders) -> list[Reject]:
    """Return a warning for each file that a broken download left."""
    detail = "is left from a download that broke off"
    return [Fault(RejectCode.LEFTOVER_FILE, f"{path} {detail}").reject("", 0, path) for path in folders.leftovers()]
