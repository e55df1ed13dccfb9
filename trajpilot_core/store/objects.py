"""An object store as a root: one conditional PUT per file (If-None-Match), no rename, no lock."""

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.store.locations import Location, check_relative

try:
    from botocore.exceptions import BotoCoreError
except ImportError:  # without the extra s3 nothing raises it
    FAILURES: tuple[type[Exception], ...] = (OSError,)
else:
    FAILURES = (OSError, BotoCoreError)

SINGLE_PUT_BYTES = 5 * 2**30 - 1
"""Largest object that one PUT can carry (Amazon S3 limits)."""
CONFLICT_WAITS_S = (0.1, 0.4, 1.6, 6.4)
"""409 ConditionalRequestConflict: another writer is at it; wait and look again."""


def open_bucket(location: Location) -> "ObjectFolder":
    """Open a prefix of an object store.

    Raises:
        InputError: it cannot be reached, or there are no credentials for it.
        StoreError: the library of the protocol is not installed.
    """
    return ObjectFolder(location.url(), open_system(location), location.path)


def open_system(location: Location) -> Any:
    """Open an object store through fsspec, and ask it once per process whether it answers.

    Credentials and endpoint come from its own configuration.

    Raises:
        InputError: it cannot be reached, or there are no credentials for it.
        StoreError: the library of the protocol is not installed.
    """
    import fsspec

    try:
        system = fsspec.filesystem(location.protocol, use_listings_cache=False)
    except ImportError as error:
        raise StoreError(
            f"{location.url()} needs a package that is absent ({error}); pip install 'trajpilot[s3]'"
        ) from error
    _require_answer(system, location)
    return system


@lru_cache(maxsize=64)
def _require_answer(system: Any, location: Location) -> None:
    """Look at an address once; whether something lies there, and who may read it, is for those who do.

    Raises:
        InputError: there is no answer, or the client finds no credentials.
    """
    try:
        system.info(location.path)
    except OSError:
        return
    except FAILURES as error:
        raise InputError(
            f"{location.url()} cannot be used ({error}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "or AWS_PROFILE, or give the machine a role, and AWS_ENDPOINT_URL where the store is not Amazon's"
        ) from error


@dataclass(frozen=True)
class ObjectFolder:
    """A prefix of a bucket."""

    url: str
    system: Any
    prefix: str

    def _at(self, path: str) -> str:
        return f"{self.prefix}/{check_relative(path)}"

    def local(self, path: str) -> Path | None:
        """Return None: nothing lies on this machine."""
        check_relative(path)
        return None

    def read(self, path: str) -> bytes:
        """Return the whole object."""
        try:
            content: bytes = self.system.cat_file(self._at(path))
        except FAILURES as error:
            raise StoreIOError(f"cannot read {self.url}/{path}: {error}") from error
        return content

    def size(self, path: str) -> int | None:
        """Return the size in bytes, None where there is no such object."""
        try:
            return int(self.system.info(self._at(path), refresh=True)["size"])
        except FileNotFoundError:
            return None
        except FAILURES as error:
            raise StoreIOError(f"cannot look at {self.url}/{path}: {error}") from error

    def replace(self, path: str, content: bytes) -> None:
        """Write the whole object, over any older one."""
        try:
            self._put(path, content, "overwrite")
        except FAILURES as error:
            raise StoreIOError(f"cannot write {self.url}/{path} ({len(content):,} bytes): {error}") from error

    def create(self, path: str, content: bytes) -> bool:
        """Write the object unless one is there (If-None-Match: *); True where this call made it."""
        for wait_s in (*CONFLICT_WAITS_S, None):
            try:
                self._put(path, content, "create")
                return True
            except FAILURES as error:
                if status_of(error) == 412 or isinstance(error, FileExistsError):
                    return False
                if status_of(error) != 409 or wait_s is None:
                    raise StoreIOError(f"cannot write {self.url}/{path} ({len(content):,} bytes): {error}") from error
                time.sleep(wait_s)
        raise AssertionError("unreachable")

    def remove(self, path: str) -> None:
        """Remove the object if it is there."""
        try:
            self.system.rm_file(self._at(path))
        except FileNotFoundError:
            return
        except FAILURES as error:
            raise StoreIOError(f"cannot remove {self.url}/{path}: {error}") from error

    def names(self, path: str) -> list[str]:
        """Return the sorted names below a prefix."""
        try:
            found = self.system.ls(self._at(path), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        except FAILURES as error:
            raise StoreIOError(f"cannot list {self.url}/{path}: {error}") from error
        names = {str(name).rstrip("/").rsplit("/", 1)[-1] for name in found}
        return sorted(name for name in names if name and not name.startswith("."))

    def _put(self, path: str, content: bytes, mode: str) -> None:
        if len(content) > SINGLE_PUT_BYTES:
            raise StoreError(f"{self.url}/{path} has {len(content):,} bytes, one PUT carries {SINGLE_PUT_BYTES:,}")
        self.system.pipe_file(self._at(path), content, mode=mode, chunksize=SINGLE_PUT_BYTES)


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of the object store's client, None where it shows none."""
    seen: BaseException | None = error
    while seen is not None:
        response = getattr(seen, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status) if status is not None else None
        seen = seen.__cause__
    return None
