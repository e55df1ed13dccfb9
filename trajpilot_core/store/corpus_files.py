"""A downloaded corpus: a local folder or an s3 prefix. Files are read whole, and never outside its root."""

import os
import re
from dataclasses import dataclass
from typing import Any

import fsspec

from schemas.rejects import RejectCode
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.store.locations import parse_location

SAFE_NAME = re.compile(r"(?!\.)(?!.*\.\.)[A-Za-z0-9_.-]{1,128}")
"""One component of a path from a corpus file: only these characters, no leading dot, no `..`."""

Stat = tuple[int, str]
"""Size in bytes, and time of change or version as the storage reports it."""


@dataclass(frozen=True)
class Corpus:
    """An opened corpus root; paths below it are relative and have forward slashes."""

    root: str
    fs: Any
    """The local file system of fsspec, or `Objects`, with the same methods."""
    is_local: bool

    def path(self, relative: str) -> str:
        """Return the path of a corpus file for `fs`."""
        return f"{self.root.rstrip('/')}/{relative}"


def open_corpus(data_root: str) -> Corpus:
    """Open the corpus root, a folder or a `file://` or `s3://` address.

    Raises:
        InputError: no root is given or it does not exist, or an object store does not answer or needs credentials.
        StoreError: the protocol of the address is not allowed.
    """
    if not data_root:
        raise InputError("no corpus root is given; give the folder of the download (--data)")
    location = parse_location(data_root)
    if location.protocol != "file":
        from trajpilot_core.store.objects import open_system

        return Corpus(location.path, open_system(location), is_local=False)
    fs = fsspec.filesystem("file", use_listings_cache=False)
    if not fs.isdir(location.path):
        raise InputError(f"the corpus root {data_root} is no folder; give the folder of the download")
    return Corpus(location.path, fs, is_local=True)


def file_names(corpus: Corpus, folder: str) -> set[str]:
    """Return the names of the files in a folder; none where the folder is absent."""
    place = corpus.path(folder)
    try:
        if corpus.is_local:  # with links to files, which fsspec does not follow; it is three times slower, too
            with os.scandir(place) as entries:
                return {entry.name for entry in entries if entry.is_file()}
        return {entry["name"].rsplit("/", 1)[-1] for entry in corpus.fs.ls(place) if entry["type"] == "file"}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def stat(corpus: Corpus, relative: str) -> Stat | None:
    """Return size and time of change of a file; None where it is absent."""
    try:
        return _stat(corpus.fs.info(corpus.path(relative)))
    except (FileNotFoundError, NotADirectoryError):
        return None


def read_whole(corpus: Corpus, relative: str) -> bytes:
    """Return the content of a file that does not change while it is read.

    Raises:
        FileNotFoundError: there is no such file.
        TakeFault: INPUT_UNSTABLE, the file changed.
    """
    before = corpus.fs.info(corpus.path(relative))
    if before["type"] == "directory":
        raise FileNotFoundError(relative)
    content: bytes = corpus.fs.cat_file(corpus.path(relative))
    if stat(corpus, relative) != _stat(before) or len(content) != before["size"]:
        raise TakeFault(RejectCode.INPUT_UNSTABLE, "the file changed while it was read", relative)
    return content


def safe_path(value: object) -> str | None:
    """Return a relative path if each of its components is safe, else None."""
    if not isinstance(value, str):
        return None
    parts = value.split("/")
    return value if all(SAFE_NAME.fullmatch(part) for part in parts) else None


def _stat(entry: dict[str, Any]) -> Stat:
    changed = next((entry[key] for key in ("mtime", "ETag", "LastModified") if key in entry), "")
    return int(entry["size"] or 0), str(changed)
