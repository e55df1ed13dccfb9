"""An object store as a root: one PUT per file, with a condition where it must be new (If-None-Match); no lock.

s3fs does the work. `Objects` adds two things: one rule for what is tried again (s3fs repeats neither an error 500 nor a
body with a wrong checksum, and its loops multiply the time-outs), and a sentence for every failure.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.store.files import NO_SPACE, advice
from trajpilot_core.store.locations import Location

try:
    from aiohttp import ClientError as BodyError
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError
except ImportError:  # without the extra s3 they are never raised
    TRANSIENT: tuple[type[Exception], ...] = (OSError,)
    FAILURES = TRANSIENT
else:
    REQUESTS = (boto.HTTPClientError, boto.ConnectionError, ResponseParserError)
    BODIES = (BodyError, boto.IncompleteReadError, boto.FlexibleChecksumError)
    TRANSIENT = (OSError, *REQUESTS, *BODIES)
    FAILURES = (*TRANSIENT, boto.BotoCoreError, ValueError)

T = TypeVar("T")
WAITS_S = (0.2, 1.0, 4.0)
"""Between attempts of a request; a task retries a stage after 10 and 60 s."""
ANSWER_LIMIT_S = 30.0
"""How long a store may take to start answering a request, and pause in an answer."""
BUSY = (408, 409, 429, 500, 502, 503, 504)
"""HTTP status of errors that may pass; 409: another writer is active."""
SINGLE_PUT_BYTES = 5 * 2**30
"""Files below this are one PUT, so that a killed writer leaves no parts behind (Amazon S3 allows no larger one)."""
SLOWEST_BYTES_S = 100_000
"""A PUT may take the limit of an answer, plus its size at this rate."""


def open_system(location: Location) -> "Objects":
    """Open an object store through fsspec, and check once per process that it answers.

    Credentials and endpoint come from the configuration of its client.

    Raises:
        InputError: it cannot be reached, or there are no credentials for it.
        StoreError: the library of the protocol is not installed.
    """
    import fsspec

    client = {
        "connect_timeout": min(ANSWER_LIMIT_S, 10.0),
        "read_timeout": ANSWER_LIMIT_S,
        "retries": {"max_attempts": 0},
    }
    client |= fsspec.config.conf.get(location.protocol, {}).get("config_kwargs", {})
    whole = {"use_listings_cache": False, "max_concurrency": 1}  # only the checksum of a whole object is checked
    try:
        system = fsspec.filesystem(location.protocol, config_kwargs=client, **whole)
    except ImportError as error:
        raise StoreError(
            f"{location.url()} needs a package that is not installed ({error}); pip install 'trajpilot[s3]'"
        ) from error
    system.retries = 1
    opened = Objects(system, ANSWER_LIMIT_S)
    _require_answer(opened, location)
    return opened


@lru_cache(maxsize=64)
def _require_answer(opened: "Objects", location: Location) -> None:
    """Check once that a store answers; whether the address exists and may be read is checked by its readers."""
    try:
        opened.info(location.path)
    except FileNotFoundError:
        return
    except StoreIOError as error:
        if status_of(error) is None:
            raise InputError(
                f"{location.url()} cannot be used ({error.__cause__}); set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role, and AWS_ENDPOINT_URL where the "
                "store is not Amazon's"
            ) from error


@dataclass(frozen=True)
class Objects:
    """An object store with the method names of fsspec; paths begin with the bucket.

    Each method returns a complete answer, or raises FileNotFoundError, FileExistsError or StoreIOError.
    """

    system: Any
    limit_s: float
    """Seconds until an answer must begin, and between two parts of it."""

    def info(self, path: str) -> dict[str, Any]:
        """Return size, ETag and time of change of an object."""
        entry: dict[str, Any] = self._ask("look at", path, self.system.info)
        if entry["type"] == "directory":
            raise FileNotFoundError(path)
        return entry

    def ls(self, path: str) -> list[dict[str, Any]]:
        """Return the objects and folders directly below a prefix."""
        return self._ask("list", path, lambda where: list(self.system.ls(where, detail=True)))

    def cat_file(self, path: str) -> bytes:
        """Return a whole object."""
        return self._ask("read", path, lambda where: bytes(self.system.cat_file(where)))

    def digest(self, path: str) -> str:
        """Return the sha256 of an object, from one GET and without keeping the object in memory."""
        from fsspec.asyn import sync

        bucket, key, _ = self.system.split_path(path)

        def hashed(_: str) -> str:
            answer = self.system.call_s3("get_object", Bucket=bucket, Key=key)
            return str(sync(self.system.loop, _sha256, answer["Body"]))

        return self._ask("read", path, hashed)

    def get_file(self, path: str, target: str) -> None:
        """Copy an object to a local file."""
        self._ask("read", path, lambda where: self.system.get_file(where, target))

    def put(self, path: str, content: bytes, mode: str = "overwrite") -> None:
        """Write a whole object; FileExistsError where it exists and `mode` is "create"."""
        limit_s = self.limit_s + len(content) / SLOWEST_BYTES_S
        named = {"mode": mode, "chunksize": SINGLE_PUT_BYTES, "timeout": limit_s}
        self._ask("write", path, lambda where: self.system.pipe_file(where, content, **named))

    def remove(self, path: str) -> None:
        """Remove an object."""
        self._ask("remove", path, self.system.rm_file)

    def _ask(self, doing: str, path: str, request: Callable[[str], T]) -> T:
        for wait_s in (*WAITS_S, None):
            try:
                return request(path)
            except (FileNotFoundError, FileExistsError):
                raise
            except FAILURES as error:
                if wait_s is None or not can_heal(error):
                    where = f"s3://{path.removeprefix('s3://')}"
                    raise StoreIOError(f"cannot {doing} {where}: {_reason(error)}") from error
                time.sleep(wait_s)
        raise AssertionError("unreachable")


async def _sha256(body: Any) -> str:
    """Hash the body of an answer; the client compares its size and checksum at the end."""
    sha256 = hashlib.sha256()
    async with body:
        while chunk := await body.read(2**20):
            sha256.update(chunk)
    return sha256.hexdigest()


def can_heal(error: Exception) -> bool:
    """Return whether a retry may succeed: the store is busy, or an answer was cut off, damaged, late or missing."""
    status = status_of(error)
    if status is not None:
        return status in BUSY or isinstance(error, TimeoutError)
    return isinstance(error, TRANSIENT) and getattr(error, "errno", None) not in NO_SPACE


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of the object store's client; None where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        response = getattr(seen, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status) if status is not None else None
        seen = seen.__cause__
    return None


def _reason(error: Exception) -> str:
    """Return in words what the store answered, and the remedy."""
    status, words = status_of(error), str(error) or type(error).__name__
    text = words if status is None else f"the store answered {status} ({words})"
    if isinstance(error, OSError) and error.errno in NO_SPACE:
        return f"this machine: {error.strerror}; {advice(error)}"
    if status in (401, 403):
        return f"{text}; give these credentials that permission, or set others (AWS_PROFILE)"
    if not can_heal(error):
        return f"{text}; check the address, the credentials, AWS_ENDPOINT_URL and AWS_DEFAULT_REGION"
    again = f"{len(WAITS_S) + 1} attempts failed, nothing committed is lost"
    return f"{text}; {again}: run again when the store answers"
