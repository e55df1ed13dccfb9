"""Paths and content of corpus files, in a local folder or an object store."""

from pathlib import Path

from schemas.rejects import RejectCode
from trajpilot_core.errors import TakeFault
from trajpilot_core.store.locations import check_source_path, parse_location
from trajpilot_core.store.objects import open_system

MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


def local_path(data_root: str, path: str) -> Path | None:
    """Return the file's local path, or None where the corpus root is remote.

    Raises StoreError: the root has a protocol that is not allowed, or the path leaves it.
    """
    location = parse_location(data_root)
    return Path(location.path) / check_source_path(path) if location.protocol == "file" else None


def read_bytes(data_root: str, path: str, absent: RejectCode) -> bytes:
    """Read a whole file of a corpus in a folder or at a URL.

    Raises:
        TakeFault: `absent`. Other errors of the storage (network, permission) are not faults of the take and remain
            OSErrors.
    """
    local = local_path(data_root, path)
    try:
        if local is not None:
            return local.read_bytes()
        location = parse_location(data_root)
        content: bytes = open_system(location).cat_file(f"{location.path}/{path}")
    except MISSING as error:
        raise TakeFault(absent, "the file is missing", path) from error
    return content
