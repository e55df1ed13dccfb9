"""Which places may be opened: protocols, names and relative paths are checked before any file system sees them."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from schemas.places import REFUSED, holds_login
from trajpilot_core.errors import StoreError
from trajpilot_core.incoming import shortened, text_fault

ALLOWED = ("file", "s3")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]{0,199}")
"""One component of a path that the store creates."""
PROTOCOL = re.compile(r"([A-Za-z][A-Za-z0-9+._-]+):")
"""Protocol at the start of an address (two letters or more, so not a Windows drive)."""


class Location(NamedTuple):
    """A checked address: protocol, and path without a trailing slash."""

    protocol: str
    path: str

    def url(self) -> str:
        """Return the address as text: a plain path, or `s3://bucket/prefix`."""
        return self.path if self.protocol == "file" else f"{self.protocol}://{self.path}"


def parse_location(url: str) -> Location:
    """Parse and check a plain path, `file:///path` or `s3://bucket/prefix` before any file system library sees it.

    Raises:
        StoreError: another protocol, a chained address (`::`), `..`, a NUL, an empty address, or a login in it.
    """
    if holds_login(url):
        raise StoreError(REFUSED)
    check_path_text(url)
    match = PROTOCOL.match(url)
    protocol = match.group(1).lower() if match else "file"
    if protocol not in ALLOWED:
        raise StoreError(f"{url!r} has the protocol {protocol!r}; allowed are {', '.join(ALLOWED)}")
    rest = url[match.end() :] if match else url
    is_whole = match is None or re.match("///" if protocol == "file" else "//[^/]", rest)
    if not url or not is_whole or "::" in url or ".." in re.split(r"[/\\]", url):
        raise StoreError(
            f"{url!r} is no address of a folder; give FOLDER, file:///FOLDER or s3://BUCKET/PREFIX without .."
        )
    path = rest.removeprefix("//") if match else rest
    return Location(protocol, path.rstrip("/") or path)


def check_path_text(path: str) -> str:
    """Return a path if it can be opened, stored and printed.

    Raises:
        StoreError: a NUL, or bytes that are not UTF-8.
    """
    fault = text_fault(path)
    if fault is not None:
        raise StoreError(f"the path {shortened(ascii(path))} contains {fault}; rename it, or give another")
    return path


def resolved(path: str | Path) -> Path:
    """Return the absolute path with links resolved; it need not exist.

    Raises:
        StoreError: its name is not UTF-8.
    """
    return Path(check_path_text(os.path.realpath(check_path_text(str(path)))))


def check_name(name: str) -> str:
    """Return `name` if it can be one component of a path that the store creates.

    Raises:
        StoreError: anything but letters, digits, `_`, `.`, `-` and `=`, or a leading dot, or over 200 characters.
    """
    if NAME.fullmatch(name) is None:
        raise StoreError(
            f"{name[:80]!r} cannot be a file name here; use 1 to 200 of A-Z a-z 0-9 _ . - =, no leading dot"
        )
    return name


def check_relative(path: str) -> str:
    """Return `path` if every component of it passes `check_name`.

    Raises:
        StoreError: see `check_name`.
    """
    for part in path.split("/"):
        check_name(part)
    return path


def check_source_path(path: str) -> str:
    """Return the path of an input file if it is absolute or stays below the data root.

    Raises:
        StoreError: a NUL, an address with a protocol, a chain, or `..` anywhere.
    """
    is_address = "::" in path or (PROTOCOL.match(path) is not None and "://" in path)
    if not path or "\0" in path or is_address or ".." in re.split(r"[/\\]", path):
        raise StoreError(f"{path[:200]!r} is no path of an input file below the data root; correct the corpus")
    return path
