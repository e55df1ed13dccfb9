"""Files checked against the sha256 of their manifest, every time that they are opened."""

import hashlib

from schemas.artifacts import FileEntry
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder, naming_failures
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

    Page checksums alone leave page headers and the footer open, so that the whole file is hashed with every opening
    (docs/decisions/store.md has the cost).

    Raises:
        StoreError: absent, or other bytes than were committed.
    """
    path = folder.local(f"{base}/{file.name}")
    if path is None:
        return verified_bytes(folder, base, file)
    with naming_failures("read", path), path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    _compare(str(path), digest, file)
    return path


def _compare(where: str, digest: str, file: FileEntry) -> None:
    if digest != file.sha256:
        raise StoreError(
            f"{where} is damaged: sha256 {digest[:12]}, committed was {file.sha256[:12]}; "
            "`verify --repair` drops what is damaged, the next run makes it again"
        )
