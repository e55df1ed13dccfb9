"""Files checked against the sha256 of their manifest: once per process and state of a file, or with every read."""

import functools
import hashlib
from pathlib import Path

from schemas.artifacts import FileEntry
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.parquet import Readable


def verified_bytes(folder: Folder, base: str, file: FileEntry) -> bytes:
    """Read a whole file and check its digest before anybody parses it.

    Raises:
        StoreError: absent, or other bytes than were committed.
    """
    content = folder.read(f"{base}/{file.name}")
    _compare(f"{folder.url}/{base}/{file.name}", hashlib.sha256(content).hexdigest(), file)
    return content


def verified_file(folder: Folder, base: str, file: FileEntry) -> Readable:
    """Return a file whose digest was checked: its path on this machine, or its bytes from an object store.

    A local file is hashed once per process while its size, time and inode stay; its pages carry checksums besides.

    Raises:
        StoreError: absent, or other bytes than were committed.
    """
    path = folder.local(f"{base}/{file.name}")
    if path is None:
        return verified_bytes(folder, base, file)
    try:
        state = path.stat()
        digest = _hashed(path, state.st_size, state.st_mtime_ns, state.st_ino)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; run its stage again") from error
    _compare(str(path), digest, file)
    return path


@functools.lru_cache(maxsize=100_000)
def _hashed(path: Path, size: int, mtime_ns: int, inode: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _compare(where: str, digest: str, file: FileEntry) -> None:
    if digest != file.sha256:
        raise StoreError(
            f"{where} is damaged: sha256 {digest[:12]}, committed was {file.sha256[:12]}; "
            "`verify --repair` drops what is damaged, the next run makes it again"
        )
