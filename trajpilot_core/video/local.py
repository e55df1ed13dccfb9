"""Videos of a corpus as files of this machine."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from trajpilot_core.store.corpus_files import Corpus


def local_copies(corpus: Corpus, scratch: Path) -> Callable[[dict[str, Any]], AbstractContextManager[dict[str, Any]]]:
    """Return a context manager that yields a decoder's job with a local video (a copy where the corpus is remote).

    Args:
        corpus: contains the videos of the jobs.
        scratch: folder for copies.
    """

    @contextmanager
    def local(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
        if corpus.is_local:
            yield {**job, "path": corpus.path(job["path"])}
            return
        copy = scratch / "videos" / job["path"].replace("/", "_")
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            try:
                corpus.fs.get_file(corpus.path(job["path"]), str(copy))
            except FileNotFoundError:
                copy.unlink(missing_ok=True)
            yield {**job, "path": str(copy)}
        finally:
            copy.unlink(missing_ok=True)

    return local
